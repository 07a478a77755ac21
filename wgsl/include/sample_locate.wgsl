//# Where in a histogram, from the highest bin down, the wanted mass of filter `${pick}` is reached.
//# top_k counts tokens, typical and top_p their masses.
//% include "include/sample_find.wgsl"
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
