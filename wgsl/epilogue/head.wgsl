//# Logits of the output rows, and the best of each tile (lowest token on ties).
//% macro bindings()
//% if normed
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
//% endif
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> logits: array<f32>;      // [slot, vocabulary]
@group(0) @binding(6) var<storage, read_write> best: array<vec2<u32>>;  // [slot, tile] (value's bits, token)
fn capped(v: f32) -> f32 {
  let s = v * dims.scale;
  let number = (bitcast<u32>(s) & 0x7fffffffu) <= 0x7f800000u;  // a clamp may take what is none for one
  if (dims.softcap > 0.0 && number) { return dims.softcap * tanh(clamp(s / dims.softcap, -15.0, 15.0)); }
  return s;
}
//% endmacro
//% macro input_row(token)
state[dims.outputs_at + ${token}]
//% endmacro
//% macro finish(t)
{
  var top = -3.4e38;
  var at_token = 0xffffffffu;
//% for j in range(R)
  if (owned && tile * ${R * L}u + r * ${R}u + ${j}u < dims.rows) {
    let v = capped(z${t}_${j // 4}.${c[j % 4]});
    logits[token${t} * dims.y_stride + row + ${j}u] = v;
    if (v > top) { top = v; at_token = row + ${j}u; }
  }
//% endfor
  let most = group_max(top, lane);
  let first = group_min_u32(select(0xffffffffu, at_token, top == most), lane);
  if (lane == 0u) { best[token${t} * dims.partials_out + dims.tile0 + tile] = vec2<u32>(bitcast<u32>(most), first); }
}
//% endmacro
