//# What the codes of MXFP4 and NVFP4 mean, -7 to 7: a cubic that is never off by more than 0.43, rounded.
//% from "include/fields.wgsl" import signed_nibble with context
//% from "include/held.wgsl" import hold, held with context
//% macro tiny_float()
//% if not broadcast
fn tiny_float(v: f32) -> f32 {
  return round(v * fma(v * v, 0.01923077, 0.71153846));
}
//% endif
//% endmacro
//% macro before()
//% if broadcast
${hold([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -12.0, -8.0, -6.0, -4.0, -3.0, -2.0, -1.0])}
//% endif
//% endmacro
//% macro meant(j, k)
//% if broadcast
${held(j, k)}
//% else
tiny_float(${signed_nibble(j, k)})
//% endif
//% endmacro
