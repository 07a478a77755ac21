//# Wide masses of the lanes of a workgroup of 256: their total, and the lane where a running sum passes a mark.
//# One lane searches, by sixteens: that is a few dozen reads, and less to wait for than a scan by all.
struct Found { lane: u32, rest: vec2<u32> }   // rest: of the mark, within the lane's mass
var<workgroup> lane_masses: array<vec2<u32>, 256>;
var<workgroup> group_masses: array<vec2<u32>, 16>;
var<workgroup> shared_total: vec2<u32>;

//# lays out the lanes' masses for `total` and `search`, which one lane calls
fn lay_out(own: vec2<u32>, lane: u32) {
  workgroupBarrier();
  lane_masses[lane] = own;
  workgroupBarrier();
  if (lane < 16u) {
    var sum = vec2<u32>(0u, 0u);
    for (var i = 0u; i < 16u; i++) { sum = wide_add(sum, lane_masses[lane * 16u + i]); }
    group_masses[lane] = sum;
  }
  workgroupBarrier();
}
fn total() -> vec2<u32> {
  var sum = vec2<u32>(0u, 0u);
  for (var i = 0u; i < 16u; i++) { sum = wide_add(sum, group_masses[i]); }
  return sum;
}
//# the first lane whose mass and all before it exceed the mark, which is below the total
fn search(mark: vec2<u32>) -> Found {
  var rest = mark;
  var group = 0u;
  for (; group < 15u; group++) {
    if (wide_less(rest, group_masses[group])) { break; }
    rest = wide_subtract(rest, group_masses[group]);
  }
  var lane = group * 16u;
  for (; lane < group * 16u + 15u; lane++) {
    if (wide_less(rest, lane_masses[lane])) { break; }
    rest = wide_subtract(rest, lane_masses[lane]);
  }
  return Found(lane, rest);
}
//# the total, for every lane
fn total_of(own: vec2<u32>, lane: u32) -> vec2<u32> {
  lay_out(own, lane);
  if (lane == 0u) { shared_total = total(); }
  return workgroupUniformLoad(&shared_total);
}
