//# h += scale * the weighted sum of what a token's experts gave, first to last; then as `residual` leaves it.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;           // [token, used, width / 4]
@group(0) @binding(2) var<storage, read> weights: array<f32>;           // [token, used + 1], the shared expert's last
//% if shared
@group(0) @binding(3) var<storage, read> shared_y: array<vec4<f32>>;    // [token, width / 4]
//% endif
@group(0) @binding(4) var<storage, read> next: array<vec4<f32>>;        // [width / 4]
@group(0) @binding(5) var<storage, read_write> h: array<vec4<f32>>;     // [token, width / 4]
//% from "include/rows.wgsl" import rows_out with context
${rows_out(6, "hw")}  // [token, width / 4]
@group(0) @binding(7) var<storage, read_write> sums: array<f32>;        // [token, partials]
//% include "include/reduce.wgsl"

@compute @workgroup_size(${S})
fn expert_add(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = group.y;
  let weights_at = token * ${used + 1}u;
  var p = 0.0;
  for (var i = lane; i * 4u < dims.width; i += ${S}u) {
    var total = y[token * ${used}u * dims.x_stride + i] * weights[weights_at];
    for (var s = 1u; s < ${used}u; s++) {
      total = fma(y[(token * ${used}u + s) * dims.x_stride + i], vec4<f32>(weights[weights_at + s]), total);
    }
//% if shared
    total = fma(shared_y[token * dims.x_stride + i], vec4<f32>(weights[weights_at + ${used}u]), total);
//% endif
    let a = token * dims.y_stride + i;
    let v = fma(total, vec4<f32>(dims.scale), h[a]);
    h[a] = v;
    put_hw(a, v * next[i]);
    p = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, p))));
  }
  p = group_sum(p, lane);
  for (var i = lane; i < dims.partials; i += ${S}u) { sums[token * dims.partials + i] = select(0.0, p, i == 0u); }
}
