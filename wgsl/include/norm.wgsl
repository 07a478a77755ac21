//# 1 / sqrt(mean(h^2) + eps) of a token from the partial sums its last writer left.
fn norm_scale(token: u32, lane: u32) -> f32 {
  var sum = 0.0;
  for (var i = lane; i < dims.partials; i += ${S}u) { sum += sums[token * dims.partials + i]; }
  return 1.0 / sqrt(group_sum(sum, lane) / f32(dims.width) + dims.eps);
}
