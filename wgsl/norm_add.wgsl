//# h += scale * RMS(y) of a token's whole row (the norm after a branch); then as `residual` leaves it.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;           // [token, width / 4]
@group(0) @binding(2) var<storage, read> post: array<vec4<f32>>;        // [width / 4]
@group(0) @binding(3) var<storage, read> next: array<vec4<f32>>;        // [width / 4]
@group(0) @binding(4) var<storage, read_write> h: array<vec4<f32>>;     // [token, width / 4]
//% from "include/rows.wgsl" import rows_out with context
${rows_out(5, "hw")}  // [token, width / 4]
@group(0) @binding(6) var<storage, read_write> sums: array<f32>;        // [token, partials]
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"

@compute @workgroup_size(${S})
fn norm_add(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = group.y;
  let w4 = dims.width / 4u;
  var q = 0.0;
  for (var i = lane; i < w4; i += ${S}u) { q = squares(y[token * dims.x_stride + i], q); }
  let scale = dims.scale / sqrt(group_sum(q, lane) / f32(dims.width) + dims.eps);
  var p = 0.0;
  for (var i = lane; i < w4; i += ${S}u) {
    let a = token * dims.y_stride + i;
    let v = fma(y[token * dims.x_stride + i] * post[i], vec4<f32>(scale), h[a]);
    h[a] = v;
    put_hw(a, v * next[i]);
    p = squares(v, p);
  }
  p = group_sum(p, lane);
  for (var i = lane; i < dims.partials; i += ${S}u) { sums[token * dims.partials + i] = select(0.0, p, i == 0u); }
}
