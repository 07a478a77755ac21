//# Wide sums over the lanes of a workgroup of 256: of those before one's own, and of all.
var<workgroup> lane_masses: array<vec2<u32>, 256>;
var<workgroup> group_masses: array<vec2<u32>, 16>;
struct Sums { before: vec2<u32>, total: vec2<u32> }

fn sums_over(own: vec2<u32>, lane: u32) -> Sums {
  workgroupBarrier();
  lane_masses[lane] = own;
  workgroupBarrier();
  if (lane < 16u) {
    var sum = vec2<u32>(0u, 0u);
    for (var i = 0u; i < 16u; i++) { sum = wide_add(sum, lane_masses[lane * 16u + i]); }
    group_masses[lane] = sum;
  }
  workgroupBarrier();
  var sums = Sums(vec2<u32>(0u, 0u), vec2<u32>(0u, 0u));
  for (var i = 0u; i < 16u; i++) {
    if (i == lane / 16u) { sums.before = sums.total; }
    sums.total = wide_add(sums.total, group_masses[i]);
  }
  for (var i = lane & 0xf0u; i < lane; i++) { sums.before = wide_add(sums.before, lane_masses[i]); }
  return sums;
}
