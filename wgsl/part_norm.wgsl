//# x / sqrt(mean(x^2) + eps) of each of several parts of a token's row, in their place: a norm without weights.
//# What a state space selects: the latent of its steps, FIRST vec4s, and behind it B and C, OTHERS each.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;     // [token, x_stride]
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"

@compute @workgroup_size(${S})
fn part_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = group.x == 0u;
  let w4 = select(${OTHERS}u, ${FIRST}u, first);
  let at = group.y * dims.x_stride + select(${FIRST}u + (max(group.x, 1u) - 1u) * ${OTHERS}u, 0u, first);
  var sum = 0.0;
  for (var i = lane; i < w4; i += ${S}u) { sum = squares(x[at + i], sum); }
  let scale = 1.0 / sqrt(group_sum(sum, lane) / f32(4u * w4) + dims.eps);
  for (var i = lane; i < w4; i += ${S}u) { x[at + i] *= scale; }
}
