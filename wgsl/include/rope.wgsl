//# Turns the two pairs of four neighbouring dimensions; `turns` holds (cos, sin) [position, pair].
fn turned(v: vec4<f32>, position: u32, dimension: u32) -> vec4<f32> {
  var out = v;
  let pair = dimension / 2u;
  if (pair < dims.rope_half) {
    let a = turns[position * dims.rope_half + pair];
    out.x = fma(v.x, a.x, -(v.y * a.y));
    out.y = fma(v.y, a.x, v.x * a.y);
  }
  if (pair + 1u < dims.rope_half) {
    let b = turns[position * dims.rope_half + pair + 1u];
    out.z = fma(v.z, b.x, -(v.w * b.y));
    out.w = fma(v.w, b.x, v.z * b.y);
  }
  return out;
}
