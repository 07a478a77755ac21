//# Where in a histogram, from the highest bin down, the wanted mass is reached.
//# `${pick}` is the filter at work: top_k counts tokens, typical and top_p their masses.
//% include "include/sample_prefix.wgsl"
struct Place { bin: u32, wanted: vec2<u32>, mass: vec2<u32> }   // wanted: of the bin's mass
var<workgroup> place: Place;
const PICK_AT = ${pick.upper()}_AT;
const SETTLED = ${{"top_k": 0, "typical": 1, "top_p": 2}[pick]}u;   // filters before this one

fn picks(slot: u32) -> bool {
  if ((terms[slot].flags & SHORTLISTED) != 0u) { return false; }
//% if pick == "top_k"
  return terms[slot].top_k < VOCABULARY;
//% elif pick == "typical"
  return (terms[slot].flags & TYPICAL) != 0u;
//% else
  return (terms[slot].flags & (TYPICAL | TOP_P)) != 0u;
//% endif
}
fn rank_of(key: u32) -> u32 { return ${"typical_rank(key)" if pick == "typical" else "key"}; }
fn mass_wanted(slot: u32, total: vec2<u32>) -> vec2<u32> {
//% if pick == "top_k"
  return vec2<u32>(terms[slot].top_k, 0u);
//% elif pick == "typical"
  return wide_add(wide_scaled(total, terms[slot].typical).xy, vec2<u32>(1u, 0u));
//% else
  if ((terms[slot].flags & TOP_P) == 0u) { return total; }
  let scaled = wide_scaled(total, terms[slot].top_p);
  return wide_add(scaled.xy, vec2<u32>(scaled.z, 0u));
//% endif
}
//# `each` bins a lane from `at`; at the first level the wanted mass follows from the total
fn locate(slot: u32, at: u32, each: u32, asked: vec2<u32>, first: bool, lane: u32) -> Place {
  let highest = at + 2u * (each * (256u - lane) - 1u);
  var own = vec2<u32>(0u, 0u);
  for (var i = 0u; i < each; i++) { own = wide_add(own, wide_of(slot, highest - 2u * i)); }
  let sums = sums_over(own, lane);
  let wanted = select(asked, mass_wanted(slot, sums.total), first);
  if (wide_less(sums.before, wanted) && !wide_less(wide_add(sums.before, own), wanted)) {
    var left = wide_subtract(wanted, sums.before);
    for (var i = 0u; i < each; i++) {
      let mass = wide_of(slot, highest - 2u * i);
      if (!wide_less(mass, left)) {
        place = Place((highest - 2u * i - at) / 2u, left, mass);
        break;
      }
      left = wide_subtract(left, mass);
    }
  }
  return workgroupUniformLoad(&place);
}
