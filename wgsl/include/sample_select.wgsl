//# Radix selection of the `wanted` largest (key, low) pairs of one workgroup, eight bits a level: four levels
//# of the key, then three of low = 0xffffff - token, so that of equal keys the lower tokens are taken.
struct Cut {
  known: u32,   // the key's digits so far
  low: u32,     // then low's
  shift: u32,   // of the next digit
  wanted: u32,  // of those that equal the digits so far
  tied: bool,   // the next digit is low's
}
var<workgroup> votes: array<atomic<u32>, 256>;
var<workgroup> sixteens: array<u32, 16>;
var<workgroup> elected: vec3<u32>;  // digit, wanted of it, 1 where that is all of it

fn cut_of(wanted: u32) -> Cut { return Cut(0u, 0u, 24u, wanted, false); }
fn digits_of(cut: Cut, key: u32, low: u32) -> u32 { return select(key, low, cut.tied) >> cut.shift; }
fn open_votes(lane: u32) {
  atomicStore(&votes[lane], 0u);
  workgroupBarrier();
}
fn vote(cut: Cut, key: u32, low: u32) {
  let digits = digits_of(cut, key, low);
  let before = digits >> 8u;
  if (select(before == cut.known, key == cut.known && before == cut.low, cut.tied)) { atomicAdd(&votes[digits & 255u], 1u); }
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
fn with_digit(cut: Cut, digit: vec3<u32>) -> Cut {
  var next = cut;
  next.wanted = digit.y;
  if (cut.tied) { next.low = (cut.low << 8u) | digit.x; } else { next.known = (cut.known << 8u) | digit.x; }
  return next;
}
fn one_finer(cut: Cut) -> Cut {
  var next = cut;
  next.tied = cut.tied || cut.shift == 0u;
  next.shift = select(cut.shift - 8u, 16u, cut.shift == 0u);
  return next;
}
//# whether a pair is among the selected, once a digit has been found whole
fn is_selected(cut: Cut, key: u32, low: u32) -> bool {
  let digits = digits_of(cut, key, low);
  return select(digits >= cut.known, key > cut.known || (key == cut.known && digits >= cut.low), cut.tied);
}
