//# activation(gate) * up, for models whose gate and up do not share one stream.
//% from "include/rows.wgsl" import rows_out with context
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> gate: array<vec4<f32>>;       // [token, width / 4]
@group(0) @binding(2) var<storage, read> up: array<vec4<f32>>;         // [token, width / 4]
${rows_out(3, "y")}  // [token, width / 4]
//% include "include/activations.wgsl"

@compute @workgroup_size(${S})
fn activate(@builtin(global_invocation_id) id: vec3<u32>) {
  let at = id.x * 4u;
  if (at < dims.width) {
    let i = id.y * dims.x_stride + id.x;
    let g = gate[i];
    let u = up[i];
    var v = vec4<f32>(0.0);  // what pads a row is zero
//% for x in c
    if (at + ${loop.index0}u < dims.width) { v.${x} = ${activation}(g.${x}) * ${"raised" if activation == "clipped" else ""}(u.${x}); }
//% endfor
    put_y(i, v);
  }
}
