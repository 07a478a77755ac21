//# activation(gate) * up, for models whose gate and up do not share one stream.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> gate: array<f32>;       // [token, width]
@group(0) @binding(2) var<storage, read> up: array<f32>;         // [token, width]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;    // [token, width]
//% include "include/activations.wgsl"

@compute @workgroup_size(${S})
fn activate(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < dims.width) {
    let i = id.y * dims.x_stride * 4u + id.x;
    y[i] = ${activation}(gate[i]) * up[i];
  }
}
