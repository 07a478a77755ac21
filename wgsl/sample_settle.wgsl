//# Whole route: the end of filter `${pick}`: the least rank that stays, and of the tokens that have just this rank the
//# bound below which they stay.  Leaves the histograms zero.  A slot a workgroup.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;    // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_locate.wgsl"
const SPAN = ${(vocabulary + 255) // 256}u;   // tokens a lane counts

//# mass of one token of this rank
fn mass_at(rank: u32) -> vec2<u32> {
//% if pick == "top_k"
  return vec2<u32>(1u, 0u);
//% elif pick == "typical"
  let off = ~rank >> 1u;
  return mass_of(select(mean - off, mean + off, (rank & 1u) == 0u));
//% else
  return mass_of(distance_of(rank, top, 1.0));
//% endif
}
//# how many tokens of one mass reach the wanted one
fn tokens_for(wanted: vec2<u32>, mass: vec2<u32>) -> u32 {
  var short = 0u;
  for (var bit = 0x80000u; bit > 0u; bit >>= 1u) {
    let low = wide_product(short | bit, mass.x);
    if (wide_less(vec2<u32>(low.x, low.y + (short | bit) * mass.y), wanted)) { short |= bit; }
  }
  return short + 1u;
}
fn is_at(slot: u32, token: u32, least: u32) -> bool {
  let key = keys[slot * VOCABULARY + token];
  return rank_of(key) == least && is_left(key, token);
}

@compute @workgroup_size(256)
fn sample_settle(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.x;
  if (!picks(slot)) { return; }
  recall(slot, SETTLED);
  let place = locate(slot, LEVEL2, 8u, wide_of(slot, PICK_AT + 4u), false, lane);
  let least = (word_of(slot, PICK_AT + 3u) << 11u) | place.bin;
  let one = mass_at(least);
  let stay = tokens_for(place.wanted, one);
  let low = wide_product(stay, one.x);
  if (lane == 0u) {
    put_word(slot, PICK_AT + 6u, least);
    put_word(slot, PICK_AT + 7u, 0xffffffffu);
  }
  let all_stay = !wide_less(vec2<u32>(low.x, low.y + stay * one.y), place.mass);
  let first = select(lane * SPAN, VOCABULARY, all_stay);
  let end = min(first + SPAN, VOCABULARY);
  var level = 0u;
  for (var token = first; token < end; token++) { level += select(0u, 1u, is_at(slot, token, least)); }
  let before = sums_over(vec2<u32>(level, 0u), lane).before.x;
  if (before < stay && stay <= before + level) {
    var missing = stay - before;
    for (var token = first; token < end; token++) {
      if (is_at(slot, token, least)) { missing -= 1u; }
      if (missing == 0u) {
        put_word(slot, PICK_AT + 7u, token + 1u);
        break;
      }
    }
  }
  for (var i = LEVEL0 + lane; i < BLOCK_MASSES; i += 256u) { put_word(slot, i, 0u); }
}
