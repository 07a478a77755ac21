//# Sum and maximum over the workgroup in one fixed order; every invocation gets the result.
//# `reduce` is "subgroup" where one subgroup holds the workgroup, else "shared".
//% if reduce == "subgroup"
fn group_sum(v: f32, lane: u32) -> f32 { return subgroupAdd(v); }
fn group_max(v: f32, lane: u32) -> f32 { return subgroupMax(v); }
fn group_min_u32(v: u32, lane: u32) -> u32 { return subgroupMin(v); }
//% else
var<workgroup> reduced: array<f32, ${S}>;
fn group_sum(v: f32, lane: u32) -> f32 {
  workgroupBarrier();
  reduced[lane] = v;
  workgroupBarrier();
  for (var step = ${S // 2}u; step > 0u; step >>= 1u) {
    if (lane < step) { reduced[lane] += reduced[lane + step]; }
    workgroupBarrier();
  }
  return reduced[0];
}
fn group_max(v: f32, lane: u32) -> f32 {
  workgroupBarrier();
  reduced[lane] = v;
  workgroupBarrier();
  for (var step = ${S // 2}u; step > 0u; step >>= 1u) {
    if (lane < step) { reduced[lane] = max(reduced[lane], reduced[lane + step]); }
    workgroupBarrier();
  }
  return reduced[0];
}
var<workgroup> reduced_u32: array<u32, ${S}>;
fn group_min_u32(v: u32, lane: u32) -> u32 {
  workgroupBarrier();
  reduced_u32[lane] = v;
  workgroupBarrier();
  for (var step = ${S // 2}u; step > 0u; step >>= 1u) {
    if (lane < step) { reduced_u32[lane] = min(reduced_u32[lane], reduced_u32[lane + step]); }
    workgroupBarrier();
  }
  return reduced_u32[0];
}
//% endif
