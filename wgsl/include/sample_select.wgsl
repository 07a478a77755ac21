//# Radix selection of the `wanted` largest (key, low) pairs of one workgroup, eight bits a level: four levels
//# of the key, then three of low = 0xffffff - token, so that of equal keys the lower tokens are taken.
struct Cut {
  known: u32,   // the key's digits so far
  low: u32,     // then low's
  shift: u32,   // of the last digit
  wanted: u32,  // of those that equal the digits so far
  tied: bool,   // the digits are low's
}
var<workgroup> votes: array<atomic<u32>, 256>;
var<workgroup> sixteens: array<u32, 16>;
var<workgroup> found: vec3<u32>;  // digit, wanted of it, 1 where that is all of it

fn digits_of(cut: Cut, key: u32, low: u32) -> u32 { return select(key, low, cut.tied) >> cut.shift; }
fn vote(cut: Cut, key: u32, low: u32) {
  let digits = digits_of(cut, key, low);
  let before = digits >> 8u;
  if (select(before == cut.known, key == cut.known && before == cut.low, cut.tied)) { atomicAdd(&votes[digits & 255u], 1u); }
}
fn is_cut(cut: Cut, key: u32, low: u32) -> bool {
  let digits = digits_of(cut, key, low);
  return select(digits >= cut.known, key > cut.known || (key == cut.known && digits >= cut.low), cut.tied);
}
//# the digit where the wanted-th largest lies; every lane gets it
fn elected(lane: u32, wanted: u32) -> vec3<u32> {
  workgroupBarrier();
  if (lane < 16u) {
    var sum = 0u;
    for (var i = 0u; i < 16u; i++) { sum += atomicLoad(&votes[255u - lane * 16u - i]); }
    sixteens[lane] = sum;
  }
  workgroupBarrier();
  let own = atomicLoad(&votes[255u - lane]);
  var before = 0u;
  for (var i = 0u; i < lane / 16u; i++) { before += sixteens[i]; }
  for (var i = lane & 0xf0u; i < lane; i++) { before += atomicLoad(&votes[255u - i]); }
  if (before < wanted && wanted <= before + own) {
    found = vec3<u32>(255u - lane, wanted - before, select(0u, 1u, own == wanted - before));
  }
  return workgroupUniformLoad(&found);
}
