//# What the sixteen codes of IQ4_NL and IQ4_XS mean: rounded, a polynomial that is never off by more than 0.44.
//# One for each place a code may have in its word, which scales the coefficients.
//% from "include/fields.wgsl" import in_place_nibble, nibble_lift with context
//% from "include/held.wgsl" import hold, held with context
//% macro curve()
//% if not broadcast
//% for at in range(0, 28, 4)
fn curve_${at}(code: u32) -> f32 {
  let v = f32(code);
  return round(fma(v, fma(v, fma(v, fma(v, ${1.58604282e-3 / 16 ** at}, ${3.10864393e-2 / 8 ** at}), ${(0 - 1.37192704) / 4 ** at}), ${24.1738303 / 2 ** at}), -126.567010));
}
//% endfor
//% endif
//% endmacro
//% macro before()
//% if broadcast
${hold([-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0])}
//% endif
//% endmacro
//% macro meant(j, k)
//% if broadcast
${held(j, k)}
//% else
curve_${nibble_lift(k) | trim}(${in_place_nibble(j, k)})
//% endif
//% endmacro
