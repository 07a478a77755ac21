//# y = weight * (x - mean) / sqrt(variance + eps) + bias of a token's whole row: a norm that its linear cannot finish.
//# The variance is that of the differences, in a pass of its own: E(x^2) - mean^2 would cancel.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
//% from "include/rows.wgsl" import rows_in, rows_out with context
${rows_in(1, "x")}  // [token, width / 4]
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;      // [width / 4]
//% if bias
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;        // [width / 4]
//% endif
//% if outputs
@group(0) @binding(4) var<storage, read> state: array<u32>;
//% endif
${rows_out(5, "y")}  // [token, width / 4]
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"

@compute @workgroup_size(${S})
fn layer_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
//% if outputs
  let row = state[dims.outputs_at + group.y] * dims.x_stride;
//% else
  let row = group.y * dims.x_stride;
//% endif
  let w4 = dims.width / 4u;
  var sum = 0.0;
  for (var i = lane; i < w4; i += ${S}u) {
    let v = x_at(row + i);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  let mean = vec4<f32>(group_sum(sum, lane) / f32(dims.width));
  var apart = 0.0;
  for (var i = lane; i < w4; i += ${S}u) { apart = squares(x_at(row + i) - mean, apart); }
  let scale = 1.0 / sqrt(group_sum(apart, lane) / f32(dims.width) + dims.eps);
  for (var i = lane; i < w4; i += ${S}u) {
    put_y(row + i, ${"fma((x_at(row + i) - mean) * scale, weight[i], bias[i])" if bias else "(x_at(row + i) - mean) * scale * weight[i]"});
  }
}
