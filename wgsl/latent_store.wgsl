//# What latent attention does between its linears: a token's row into its page, and each head's query but for what
//# a linear absorbs, which goes where that reads it.  A row is [turned latents, normed latents, zeros], of which all
//# is the key; one workgroup for each head, and one for the row.  Sizes in vec4s: RANK of what is normed, TURNED of
//# what turns, OWN of a head's query that does not; OWN_AT from one head's part to the next where it is read.
//% from "include/cache_format.wgsl" import pool_out with context
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> latents: array<vec4<f32>>;     // [token, ..., RANK, TURNED]
@group(0) @binding(2) var<storage, read> asked: array<vec4<f32>>;       // [token, head, (OWN, TURNED)]
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;      // [RANK], of the norm
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<f32>>; // [token, head, head_dim / 4]
@group(0) @binding(7) var<storage, read_write> own: array<vec4<f32>>;   // [token, head, OWN_AT]
${pool_out(8, "keys", key_format)}
//% include "include/reduce.wgsl"
//% include "include/squares.wgsl"
//% include "include/rope.wgsl"
//% include "include/pages.wgsl"
//% set kept = {"f32": "v", "f16": "halves_of(v)", "q8": "bytes_of(v * shrink)"}[key_format]

//# vec4 d of the row
fn row_of(first: u32, d: u32, position: u32, norm: f32) -> vec4<f32> {
  let normed = latents[first + clamp(d, ${TURNED}u, ${TURNED + RANK - 1}u) - ${TURNED}u] * norm * weight[clamp(d, ${TURNED}u, ${TURNED + RANK - 1}u) - ${TURNED}u];
  let turned_part = turned(latents[first + ${RANK}u + min(d, ${TURNED - 1}u)], position, min(d, ${TURNED - 1}u) * 4u);
  return select(select(vec4<f32>(0.0), normed, d < ${TURNED + RANK}u), turned_part, d < ${TURNED}u);
}

@compute @workgroup_size(${S})
fn latent_store(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let head = group.x;
  let token = group.y;
  let position = state[dims.rows_at + token * 4u + 1u];
  let first = token * ${STRIDE}u + ${LATENTS_AT}u;
  var sum = 0.0;
  if (head == dims.heads) {
    for (var d = lane; d < ${RANK}u; d += ${S}u) { sum = squares(latents[first + d], sum); }
  }
  let norm = 1.0 / sqrt(group_sum(sum, lane) / ${4 * RANK}.0 + dims.eps);
//% if key_format == "q8"
  var most = 0.0;
  if (head == dims.heads) {
    for (var d = lane; d < dims.head_dim / 4u; d += ${S}u) {
      let m = abs(row_of(first, d, position, norm));
//% if one_bit
      most += m.x + m.y + m.z + m.w;
//% else
      most = max(most, max(max(m.x, m.y), max(m.z, m.w)));
//% endif
    }
  }
//% if one_bit
  let scale = group_sum(most, lane) / f32(dims.head_dim);
  let shrink = select(0.0, 1e30, scale > 1e-30);
//% else
  let scale = group_max(most, lane) / 127.0;
  let shrink = select(0.0, 1.0 / scale, scale > 1e-30);  // a lesser row is kept as zeros
//% endif
//% endif
  if (head == dims.heads) {
    let page = page_of(state[dims.rows_at + token * 4u + 2u + dims.windowed], position);
//% if key_format == "q8"
    if (lane == 0u) { put_keys(key_scale_at(page, 0u, position), bitcast<u32>(${"scale / 127.0" if one_bit else "scale"})); }
//% endif
    for (var d = lane; d < dims.head_dim / 4u; d += ${S}u) {
      let v = row_of(first, d, position, norm);
      put_keys(key_at(page, 0u, position, d * 4u), ${kept});
    }
  } else {
    let at = token * dims.x_stride + head * ${OWN + TURNED}u;
    for (var d = lane; d < ${OWN}u; d += ${S}u) {
      own[(token * dims.heads + head) * ${OWN_AT}u + d] = asked[at + d] * dims.scale;
    }
    for (var d = lane; d < ${TURNED}u; d += ${S}u) {
      q_out[token * dims.y_stride + head * (dims.head_dim / 4u) + d] = turned(asked[at + ${OWN}u + d], position, d * 4u) * dims.scale;
    }
  }
}
