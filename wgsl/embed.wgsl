//# h = table[token] * scale for each row, with the vectors of its position and kind where there are such; h * (the first
//# norm's weight) and sum(h^2).
//# The table may lie in several streams: each dispatch does the tokens of its own rows.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
//% include "include/stream.wgsl"
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> next: array<f32>;            // [width]
@group(0) @binding(4) var<storage, read_write> h: array<f32>;         // [token, width]
//% from "include/rows.wgsl" import rows_out with context
${rows_out(5, "hw")}  // [token, width / 4]
@group(0) @binding(6) var<storage, read_write> sums: array<f32>;      // [token, partials]
//% if positions
@group(0) @binding(7) var<storage, read> positions: array<f32>;       // [position, width]
//% endif
//% if kinds
@group(0) @binding(8) var<storage, read> kinds: array<f32>;           // [kind, width]
//% endif
//% from "quant/" ~ format ~ ".wgsl" import open, setup, lift, weight, fold with context
//% import "quant/" ~ format ~ ".wgsl" as unpacker with context
//% if unpacker.declare is defined
${unpacker.declare()}
//% endif
//% include "include/reduce.wgsl"

@compute @workgroup_size(${S})
fn embed(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token_row = group.y;
  let token = state[dims.rows_at + token_row * 4u];
  let mine = token >= dims.row0 && token < dims.row0 + dims.rows;
//% if positions
  let positions_at = state[dims.rows_at + token_row * 4u + 1u] * dims.width;
//% endif
//% if kinds
  let kinds_at = (state[dims.rows_at + token_row * 4u + 3u] >> 24u) * dims.width;
//% endif
  var q = 0.0;
  if (mine) {
    let local = token - dims.row0;
    let tile_at = local / ${height}u * ((dims.units + ${units - 1}u) / ${units}u * ${block}u);
    let r = local % ${height}u / ${R}u;
    let j = local % ${R}u;
    for (var unit = lane; unit * 32u < dims.width; unit += ${S}u) {
      let base = tile_at + unit / ${units}u * ${block}u;
      let b = base + ${head_vectors}u + unit % ${units}u * ${unit_vectors}u;
//% for p in loads
      ${p}
//% endfor
      ${open("r")}
      ${setup("r")}
//% if unpacker.fetch is defined
//% for k in range(32)
      ${unpacker.fetch("r", k)}
//% endfor
//% endif
      let at = unit * 32u;
//% for k in range(32)
//% if k % 4 == 0
      var n${k // 4} = vec4<f32>(0.0);
//% endif
      if (at + ${k}u < dims.width) {
        let w = ${fold("r", k // G, weight("r", k) ~ " * " ~ 1 / 2 ** (lift(k) | int), "1.0", "0.0")};
        let v = ${"fma(w, dims.scale, positions[positions_at + at + %du])" % k if positions else "w * dims.scale"}${" + kinds[kinds_at + at + %du]" % k if kinds else ""};
        let i = token_row * dims.y_stride * 4u + at + ${k}u;
        h[i] = v;
        n${k // 4}.${c[k % 4]} = v * next[at + ${k}u];
        q = fma(v, v, q);
      }
//% if k % 4 == 3
      if (at + ${k - 3}u < dims.width) { put_hw(token_row * dims.y_stride + unit * 8u + ${k // 4}u, n${k // 4}); }
//% endif
//% endfor
    }
  }
  q = group_sum(q, lane);
  if (mine) {
    for (var i = lane; i < dims.partials; i += ${S}u) { sums[token_row * dims.partials + i] = select(0.0, q, i == 0u); }
  }
}
