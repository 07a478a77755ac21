//# Whole route: one level of the radix selection of filter `${pick}`: masses by the next digit of the tokens' ranks.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;    // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_locate.wgsl"
//% if level == 0
var<workgroup> lows: array<atomic<u32>, 1024>;
var<workgroup> highs: array<atomic<u32>, 1024>;
//% if pick == "top_p"
var<workgroup> most: atomic<u32>;
//% endif
//% endif

//# adds to this level's histogram what belongs to its digit
fn count(slot: u32, key: u32, known: u32) {
  let rank = rank_of(key);
//% if level == 0
//% if pick == "top_p"
  atomicMax(&most, key);
//% endif
  let bin = rank >> 22u;
//% elif level == 1
  if ((rank >> 22u) != known) { return; }
  let bin = LEVEL1 + ((rank >> 11u) & 2047u) * 2u;
//% else
  if ((rank >> 11u) != known) { return; }
  let bin = LEVEL2 + (rank & 2047u) * 2u;
//% endif
  let mass = ${"vec2<u32>(1u, 0u)" if pick == "top_k" else "mass_of(distance_of(key, top, 1.0))"};
  if ((mass.x | mass.y) == 0u) { return; }
//% if level == 0
  let old = atomicAdd(&lows[bin], mass.x);
  let high = mass.y + select(0u, 1u, old > 0xffffffffu - mass.x);
  if (high != 0u) { atomicAdd(&highs[bin], high); }
//% else
  add_wide(slot, bin, mass);
//% endif
}

@compute @workgroup_size(256)
fn sample_histogram(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if (!picks(slot)) { return; }
  recall(slot, SETTLED);
//% if level == 0
  for (var bin = lane; bin < 1024u; bin += 256u) {
    atomicStore(&lows[bin], 0u);
    atomicStore(&highs[bin], 0u);
  }
//% if pick == "top_p"
  if (lane == 0u) { atomicStore(&most, 0u); }
//% endif
  workgroupBarrier();
//% endif
  var known = 0u;
//% if level > 0
//% if level == 1
  let place = locate(slot, LEVEL0, 4u, vec2<u32>(0u, 0u), true, lane);
  known = place.bin;
//% else
  let place = locate(slot, LEVEL1, 8u, wide_of(slot, PICK_AT + 1u), false, lane);
  known = (word_of(slot, PICK_AT) << 11u) | place.bin;
//% endif
  if (group.x == 0u && lane == 0u) {
    put_word(slot, PICK_AT + ${(level - 1) * 3}u, known);
    put_wide(slot, PICK_AT + ${(level - 1) * 3 + 1}u, place.wanted);
  }
//% endif
  for (var j = 0u; j < BLOCK; j += 256u) {
    let token = group.x * BLOCK + j + lane;
    if (token < VOCABULARY) {
      let key = keys[slot * VOCABULARY + token];
      if (is_left(key, token)) { count(slot, key, known); }
    }
  }
//% if level == 0
  workgroupBarrier();
  for (var bin = lane; bin < 1024u; bin += 256u) {
    let mass = vec2<u32>(atomicLoad(&lows[bin]), atomicLoad(&highs[bin]));
    if ((mass.x | mass.y) != 0u) { add_wide(slot, LEVEL0 + bin * 2u, mass); }
  }
//% if pick == "top_p"
  if (lane == 0u) { atomicMax(&work[slot * WORK + TOP_LEFT], atomicLoad(&most)); }
//% endif
//% endif
}
