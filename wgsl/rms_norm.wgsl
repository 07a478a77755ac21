//# y = weight * x / sqrt(mean(x^2) + eps) of the first values of each token's row, or of each of several parts side by side.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;           // [token, more than width / 4]
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;      // [part, width / 4]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;     // [token, part, width / 4]
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"

@compute @workgroup_size(${S})
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let w4 = dims.width / 4u;
  let part = group.x * w4;
  let x_at = group.y * dims.x_stride + part;
  let y_at = group.y * dims.y_stride + part;
  var sum = 0.0;
  for (var i = lane; i < w4; i += ${S}u) { sum = squares(x[x_at + i], sum); }
  let scale = 1.0 / sqrt(group_sum(sum, lane) / f32(dims.width) + dims.eps);
  for (var i = lane; i < w4; i += ${S}u) { y[y_at + i] = x[x_at + i] * scale * weight[part + i]; }
}
