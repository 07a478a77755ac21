//# h = table[token] * scale for each row; h * (the first norm's weight) and sum(h^2).
//# The table may lie in several streams: each dispatch does the tokens of its own rows.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
//% include "include/stream.wgsl"
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> next: array<f32>;            // [width]
@group(0) @binding(4) var<storage, read_write> h: array<f32>;         // [token, width]
@group(0) @binding(5) var<storage, read_write> hw: array<f32>;        // [token, width]
@group(0) @binding(6) var<storage, read_write> sums: array<f32>;      // [token, partials]
//% from "quant/" ~ format ~ ".wgsl" import open, setup, lift, weight, fold with context
//% include "include/reduce.wgsl"

@compute @workgroup_size(${S})
fn embed(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token_row = group.y;
  let token = state[dims.rows_at + token_row * 4u];
  let mine = token >= dims.row0 && token < dims.row0 + dims.rows;
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
      let at = unit * 32u;
//% for k in range(32)
      if (at + ${k}u < dims.width) {
        let v = ${fold("r", k // G, weight("r", k) ~ " * " ~ 1 / 2 ** (lift(k) | int), "1.0", "0.0")} * dims.scale;
        let i = token_row * dims.y_stride * 4u + at + ${k}u;
        h[i] = v;
        hw[i] = v * next[at + ${k}u];
        q = fma(v, v, q);
      }
//% endfor
    }
  }
  q = group_sum(q, lane);
  if (mine) {
    for (var i = lane; i < dims.partials; i += ${S}u) { sums[token_row * dims.partials + i] = select(0.0, q, i == 0u); }
  }
}
