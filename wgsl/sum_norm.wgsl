//# hw = h + weight * (s - mean) / sqrt(variance + eps) + bias of a token's whole row, where s = h + scale * y: h and a
//# branch normed together and added to h once more.  What norms hw into h comes next.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;           // [token, width / 4]
@group(0) @binding(2) var<storage, read> h: array<vec4<f32>>;           // [token, width / 4]
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;      // [width / 4]
//% if bias
@group(0) @binding(4) var<storage, read> bias: array<vec4<f32>>;        // [width / 4]
//% endif
//% from "include/rows.wgsl" import rows_out with context
${rows_out(5, "hw")}  // [token, width / 4]
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"

fn both(i: u32) -> vec4<f32> { return fma(y[i], vec4<f32>(dims.scale), h[i]); }

@compute @workgroup_size(${S})
fn sum_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y * dims.x_stride;
  let w4 = dims.width / 4u;
  var sum = 0.0;
  for (var i = lane; i < w4; i += ${S}u) {
    let v = both(row + i);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  let mean = vec4<f32>(group_sum(sum, lane) / f32(dims.width));
  var apart = 0.0;
  for (var i = lane; i < w4; i += ${S}u) { apart = squares(both(row + i) - mean, apart); }
  let norm = 1.0 / sqrt(group_sum(apart, lane) / f32(dims.width) + dims.eps);
  for (var i = lane; i < w4; i += ${S}u) {
    put_hw(row + i, h[row + i] + ${"fma((both(row + i) - mean) * norm, weight[i], bias[i])" if bias else "(both(row + i) - mean) * norm * weight[i]"});
  }
}
