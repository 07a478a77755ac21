//# Radix selection of the `wanted` largest (key, low) pairs of one workgroup: the digits of key - base, eight bits a
//# level from the highest that any has, then three levels of low = 0xffffff - token, so that of equal keys the lower
//# tokens are taken.  Ends at the first digit that is taken whole.
struct Cut {
  base: u32,    // no key is less
  known: u32,   // digits of key - base so far
  upper: u32,   // bits below them
  lower: u32,   // bits below the next digit
  low: u32,     // once all of key is known: digits of low so far, and its bits below them
  low_upper: u32,
  wanted: u32,  // of those that equal the digits so far
}
var<workgroup> least: atomic<u32>;
var<workgroup> most: atomic<u32>;
var<workgroup> votes: array<atomic<u32>, 256>;
var<workgroup> sixteens: array<u32, 16>;
var<workgroup> elected: vec3<u32>;  // digit, wanted of it, 1 where that is all of it

fn cut_between(low: u32, high: u32, wanted: u32) -> Cut {
  let bits = 32u - countLeadingZeros(high - low);
  return Cut(low, 0u, bits, max(bits, 8u) - 8u, 0u, 24u, wanted);
}
fn is_tied(cut: Cut) -> bool { return cut.upper == 0u; }
fn matches(cut: Cut, key: u32, low: u32) -> bool {
  let v = key - cut.base;
  return select((v >> (cut.upper & 31u)) == cut.known || cut.upper == 32u, v == cut.known && (low >> cut.low_upper) == cut.low, is_tied(cut));
}
fn digit_of(cut: Cut, key: u32, low: u32) -> u32 {
  let v = key - cut.base;
  return select((v >> cut.lower) & ((1u << (cut.upper - cut.lower)) - 1u), (low >> (cut.low_upper - 8u)) & 255u, is_tied(cut));
}
fn vote(cut: Cut, key: u32, low: u32) {
  if (matches(cut, key, low)) { atomicAdd(&votes[digit_of(cut, key, low)], 1u); }
}
fn open_votes(lane: u32) {
  atomicStore(&votes[lane], 0u);
  workgroupBarrier();
}
//# the digit where the wanted-th largest lies, for every lane; one lane searches, by sixteens
fn count_votes(lane: u32, wanted: u32) -> vec3<u32> {
  workgroupBarrier();
  if (lane < 16u) {
    var sum = 0u;
    for (var i = 0u; i < 16u; i++) { sum += atomicLoad(&votes[255u - lane * 16u - i]); }
    sixteens[lane] = sum;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var rest = wanted;
    var group = 0u;
    for (; group < 15u && rest > sixteens[group]; group++) { rest -= sixteens[group]; }
    var digit = 255u - group * 16u;
    for (var i = 0u; i < 15u; i++) {
      let own = atomicLoad(&votes[digit]);
      if (rest <= own) { break; }
      rest -= own;
      digit -= 1u;
    }
    elected = vec3<u32>(digit, rest, select(0u, 1u, rest == atomicLoad(&votes[digit])));
  }
  return workgroupUniformLoad(&elected);
}
fn narrowed(cut: Cut, digit: vec3<u32>) -> Cut {
  var next = cut;
  next.wanted = digit.y;
  if (is_tied(cut)) {
    next.low = (cut.low << 8u) | digit.x;
    next.low_upper = cut.low_upper - 8u;
  } else {
    next.known = (cut.known << (cut.upper - cut.lower)) | digit.x;
    next.upper = cut.lower;
    next.lower = max(cut.lower, 8u) - 8u;
  }
  return next;
}
//# whether a pair is among the selected, once a digit has been taken whole
fn is_selected(cut: Cut, key: u32, low: u32) -> bool {
  let v = key - cut.base;
  return select((v >> cut.upper) >= cut.known, v > cut.known || (v == cut.known && (low >> cut.low_upper) >= cut.low), is_tied(cut));
}
