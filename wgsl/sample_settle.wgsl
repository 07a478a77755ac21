//# Whole route: the end of filter `${pick}`: the least rank that stays, and of the tokens that have just this rank the
//# bound below which they stay.  Leaves the histograms zero.  A slot a workgroup.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;                // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;                   // [slot, vocabulary]
@group(0) @binding(5) var<storage, read_write> level0: array<vec2<u32>>;     // [slot, 1024]
@group(0) @binding(6) var<storage, read_write> level1: array<vec2<u32>>;     // [slot, 2048]
@group(0) @binding(7) var<storage, read_write> level2: array<vec2<u32>>;     // [slot, 2048]
//% include "include/sample_work.wgsl"
//% include "include/sample_locate.wgsl"
//% from "include/sample_macros.wgsl" import locate
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
fn times(mass: vec2<u32>, count: u32) -> vec2<u32> {
  let low = wide_product(mass.x, count);
  return vec2<u32>(low.x, low.y + mass.y * count);
}
//# how many tokens of one mass reach the wanted one
fn tokens_for(wanted: vec2<u32>, mass: vec2<u32>) -> u32 {
  var short = 0u;
  for (var bit = 0x80000u; bit > 0u; bit >>= 1u) {
    if (wide_less(times(mass, short | bit), wanted)) { short |= bit; }
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
  ${locate("level2", 8, "wide_of(slot, PICK_AT + 4u)")}
  let least = (word_of(slot, PICK_AT + 3u) << 11u) | place_found.bin;
  let one = mass_at(least);
  let stay = tokens_for(place_found.wanted, one);
  let all_stay = !wide_less(times(one, stay), place_found.mass);
  let first = select(lane * SPAN, VOCABULARY, all_stay);
  var level = 0u;
  for (var token = first; token < min(first + SPAN, VOCABULARY); token++) { level += select(0u, 1u, is_at(slot, token, least)); }
  lay_out(vec2<u32>(level, 0u), lane);
  if (lane == 0u) {
    var bound = 0xffffffffu;
    if (!all_stay) {
      let found = search(vec2<u32>(stay - 1u, 0u));
      bound = found.lane * SPAN;
      for (var missing = found.rest.x + 1u; missing > 0u; bound++) { missing -= select(0u, 1u, is_at(slot, bound, least)); }
    }
    put_word(slot, PICK_AT + 6u, least);
    put_word(slot, PICK_AT + 7u, bound);
  }
  for (var i = lane; i < 2048u; i += 256u) {
    if (i < 1024u) { level0[slot * 1024u + i] = vec2<u32>(0u, 0u); }
    level1[slot * 2048u + i] = vec2<u32>(0u, 0u);
    level2[slot * 2048u + i] = vec2<u32>(0u, 0u);
  }
}
