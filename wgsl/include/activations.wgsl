//# The clamps keep exp and tanh inside what every driver computes; beyond them the results are equal anyway,
//# but for silu far below zero, which is nothing: the clamp alone would leave v / 5e34.
fn silu(v: f32) -> f32 { return select(v / (1.0 + exp(min(-v, 80.0))), 0.0, v < -80.0); }
fn gelu_tanh(v: f32) -> f32 {
  let inner = clamp(0.7978845608028654 * fma(0.044715 * v * v, v, v), -15.0, 15.0);
  return 0.5 * v * (1.0 + tanh(inner));
}
//# x times the normal distribution: its tail is e^(-a^2) t P(2t - 1) / 2 with a = |x| / sqrt(2), as the twin has it with more terms
fn gelu_erf(v: f32) -> f32 {
  let a = min(abs(v) * 0.7071067811865476, 9.0);
  let t = 1.0 / fma(0.4, a, 1.0);
  let u = fma(2.0, t, -1.0);
  var p = 1.37665426e-4;
  p = fma(p, u, 2.33326665e-4); p = fma(p, u, -1.85206486e-3); p = fma(p, u, -3.39669011e-3); p = fma(p, u, 1.13305284e-2);
  p = fma(p, u, 6.85074936e-2); p = fma(p, u, 0.18156662); p = fma(p, u, 0.321860436); p = fma(p, u, 0.421612715);
  let tail = select(0.5 * p * t * exp(-a * a), 0.0, a == 9.0);
  return v * select(1.0 - tail, tail, v < 0.0);
}
//# the clamp keeps the square a number
fn relu_squared(v: f32) -> f32 {
  let r = clamp(v, 0.0, 1.8e19);
  return r * r;
}
//# gpt-oss: gate and up are clipped, and up counts one more.
fn clipped(v: f32) -> f32 {
  let g = min(v, 7.0);
  return select(g / (1.0 + exp(min(-1.702 * g, 80.0))), 0.0, g < -47.0);
}
fn raised(v: f32) -> f32 { return clamp(v, -7.0, 7.0) + 1.0; }
