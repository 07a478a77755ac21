//# Finishes a qkv linear of models that norm each head of q and k: RMS norm of the head, rope, pages.
//# One workgroup for a head (q heads, k heads, v heads) of a token.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;         // [token, rows / 4]
@group(0) @binding(2) var<storage, read> head_norms: array<vec4<f32>>;  // [2, head_dim / 4]: q's, k's
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<f32>>; // [token, heads * head_dim / 4]
@group(0) @binding(7) var<storage, read_write> keys: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> values: array<vec4<f32>>;
//% include "include/reduce.wgsl"
//% include "include/rope.wgsl"
//% include "include/pages.wgsl"
//% include "include/stores.wgsl"

@compute @workgroup_size(${S})
fn rope_store(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let head = group.x;
  let token = group.y;
  let d4 = dims.head_dim / 4u;
  let at = token * dims.x_stride + head * d4;
  let is_q = head < dims.heads;
  let is_v = head >= dims.heads + dims.kv_heads;
  var q = 0.0;
  for (var d = lane; d < d4; d += ${S}u) {
    let v = qkv[at + d];
    q = fma(v.x, v.x, q); q = fma(v.y, v.y, q); q = fma(v.z, v.z, q); q = fma(v.w, v.w, q);
  }
  let scale = 1.0 / sqrt(group_sum(q, lane) / f32(dims.head_dim) + dims.eps);
  for (var d = lane; d < d4; d += ${S}u) {
    let v = qkv[at + d];
    let normed = v * scale * head_norms[select(d4, 0u, is_q) + d];
    store_qkv(select(normed, v, is_v), token, head * dims.head_dim + d * 4u);
  }
}
