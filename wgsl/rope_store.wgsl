//# Finishes a qkv linear head by head: norm of q and k heads (where the model has it), rope, pages.
//# One workgroup for a head (q heads, k heads, v heads) of a token, so that a q8 cache can scale by the head.
//% from "include/cache_format.wgsl" import pool_out with context
//% from "include/rows.wgsl" import rows_out with context
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;         // [token, rows / 4]
//% if head_norms
@group(0) @binding(2) var<storage, read> norms: array<vec4<f32>>;       // ${"[2, head_dim / 4]: q's, k's" if head_norms in ("each", "late") else "q's [heads, head_dim / 4], k's [kv_heads, head_dim / 4]"}${", then both biases" if head_norms == "whole"}
//% endif
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
${rows_out(6, "q_out")}  // [token, heads * head_dim / 4]
${pool_out(7, "keys", key_format)}
${pool_out(8, "values", value_format)}
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
//% if head_norms
//% set layered = head_norms in ("layer", "whole")
//% if head_norms in ("all", "whole")
//# all heads of q, or of k, are normed together: each workgroup sums them again, in the same order
  let normed4 = select(dims.kv_heads, dims.heads, is_q) * d4;
  let normed_at = token * dims.x_stride + select(dims.heads * d4, 0u, is_q);
  let weights_at = head * d4;
//% if head_norms == "whole"
  let biases_at = (dims.heads + dims.kv_heads + head) * d4;
//% endif
//% else
  let normed4 = d4;
  let normed_at = at;
  let weights_at = ${"head * d4" if head_norms == "layer" else "select(d4, 0u, is_q)"};
//% endif
//% if layered
  var sum = 0.0;
  for (var d = lane; d < normed4; d += ${S}u) {
    let v = qkv[normed_at + d];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  let mean = vec4<f32>(group_sum(sum, lane) / f32(4u * normed4));
//% endif
  var q = 0.0;
  for (var d = lane; d < normed4; d += ${S}u) {
    let v = qkv[normed_at + d]${" - mean" if layered else ""};
    q = fma(v.x, v.x, q); q = fma(v.y, v.y, q); q = fma(v.z, v.z, q); q = fma(v.w, v.w, q);
  }
  let norm = 1.0 / sqrt(group_sum(q, lane) / f32(4u * normed4) + dims.eps);
//% endif
//% macro head_value(d)
//% if head_norms == "layer"
select((qkv[at + ${d}] - mean) * norm * norms[weights_at + ${d}], qkv[at + ${d}], is_v)
//% elif head_norms == "whole"
select(fma((qkv[at + ${d}] - mean) * norm, norms[weights_at + ${d}], norms[biases_at + ${d}]), qkv[at + ${d}], is_v)
//% elif head_norms == "late"
//# rope turns a head and leaves its length, so what it is divided by is known before; the weights come after it
select(qkv[at + ${d}] * norm, qkv[at + ${d}], is_v)
//% elif head_norms
select(qkv[at + ${d}] * norm * norms[weights_at + ${d}], qkv[at + ${d}], is_v)
//% else
qkv[at + ${d}]
//% endif
//% endmacro
  var shrink = 1.0;
//% if "q8" in (key_format, value_format)
//# the scale of a head: its largest magnitude over 127 (or, of a one-bit cache, the mean magnitude)
  if (!is_q) {
    let position = state[dims.rows_at + token * 4u + 1u];
    let page = page_of(state[dims.rows_at + token * 4u + 2u + dims.windowed], position);
    var most = 0.0;
    for (var d = lane; d < d4; d += ${S}u) {
      let v = ${head_value("d")};
//% if key_format == "q8"
      let m = abs(select(turned(v, position, d * 4u)${" * norms[d4 + d]" if head_norms == "late"}, v, is_v));
//% else
      let m = abs(v);
//% endif
//% if one_bit
      most += m.x + m.y + m.z + m.w;
//% else
      most = max(most, max(max(m.x, m.y), max(m.z, m.w)));
//% endif
    }
//% if one_bit
    let scale = group_sum(most, lane) / f32(dims.head_dim);
    shrink = select(0.0, 1e30, scale > 1e-30);
//% else
    let scale = group_max(most, lane) / 127.0;
    shrink = select(0.0, 1.0 / scale, scale > 1e-30);  // a lesser head is kept as zeros
//% endif
    if (lane == 0u) {
//% set kept = "scale / 127.0" if one_bit else "scale"
      if (is_v) {
//% if value_format == "q8"
        put_values(value_scale_at(page, head - dims.heads - dims.kv_heads, position), bitcast<u32>(${kept}));
//% endif
      } else {
//% if key_format == "q8"
        put_keys(key_scale_at(page, head - dims.heads, position), bitcast<u32>(${kept}));
//% endif
      }
    }
  }
//% endif
  for (var d = lane; d < d4; d += ${S}u) {
    let v = ${head_value("d")};
    store_qkv(v, token, head * dims.head_dim + d * 4u, shrink);
  }
}
