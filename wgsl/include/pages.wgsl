//# Where a token's keys and values lie, and in which format.  A page holds 16 tokens of every kv head:
//# keys [page][kv head][dim / 4][16] (a lane is a token), values [page][kv head][16][dim / 4], four
//# dimensions an element: vec4<f32> (f32), two words of halves (f16), one word of signed bytes (q8).
//# In q8 the head's 16 elements of scales follow its page: value = scale of the token * byte.
fn page_of(table: u32, position: u32) -> u32 { return state[table + position / 16u]; }
fn keys_from(page: u32, head: u32) -> u32 {
  return (page * dims.kv_heads + head) * (dims.head_dim * 4u${" + 16u" if key_format == "q8" else ""});
}
fn values_from(page: u32, head: u32) -> u32 {
  return (page * dims.kv_heads + head) * (dims.head_dim * 4u${" + 16u" if value_format == "q8" else ""});
}
fn key_at(page: u32, head: u32, position: u32, dimension: u32) -> u32 {
  return keys_from(page, head) + dimension / 4u * 16u + position % 16u;
}
fn value_at(page: u32, head: u32, position: u32, dimension: u32) -> u32 {
  return values_from(page, head) + position % 16u * (dims.head_dim / 4u) + dimension / 4u;
}
//% if key_format == "q8"
fn key_scale_at(page: u32, head: u32, position: u32) -> u32 { return keys_from(page, head) + dims.head_dim * 4u + position % 16u; }
//% endif
//% if value_format == "q8"
fn value_scale_at(page: u32, head: u32, position: u32) -> u32 { return values_from(page, head) + dims.head_dim * 4u + position % 16u; }
//% endif
//% if "f16" in (key_format, value_format)
fn halves_of(v: vec4<f32>) -> vec2<u32> {
  let h = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));  // beyond the largest half WGSL promises nothing
  return vec2<u32>(pack2x16float(h.xy), pack2x16float(h.zw));
}
fn from_halves(w: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y)); }
//% endif
//% if "q8" in (key_format, value_format)
fn from_bytes(w: u32) -> vec4<f32> {
  let i = bitcast<i32>(w);
  return vec4<f32>(f32(extractBits(i, 0u, 8u)), f32(extractBits(i, 8u, 8u)), f32(extractBits(i, 16u, 8u)), f32(i >> 24u));
}
//# v already divided by the scale; ties away from zero, on both sides of the twin
fn bytes_of(v: vec4<f32>) -> u32 {
  let r = vec4<i32>(clamp(sign(v) * floor(abs(v) + 0.5), vec4<f32>(-127.0), vec4<f32>(127.0)));
  let b = vec4<u32>(r) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}
//% endif
