//# Short route, second half: the top_k of the blocks' candidates, then every filter and the draw, a slot a workgroup.
//# A filter that keeps a prefix of some order keeps an entry when the mass before it is short of the goal.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
//% include "include/sample_row.wgsl"
@group(0) @binding(4) var<storage, read> shortlist: array<vec2<u32>>;  // [slot, block, 256] (key, token)
//% include "include/sample_select.wgsl"
//% include "include/sample_philox.wgsl"
var<workgroup> taken: atomic<u32>;
var<workgroup> keys: array<u32, 256>;
var<workgroup> tokens: array<u32, 256>;
var<workgroup> masses: array<vec2<u32>, 256>;   // zero: filtered out
var<workgroup> ranks: array<u32, 256>;

fn candidate(slot: u32, top_k: u32, i: u32) -> vec2<u32> {
  return shortlist[(slot * BLOCKS + i / top_k) * 256u + i % top_k];
}
//# fills keys and tokens with the top_k largest
fn shorten(slot: u32, top_k: u32, lane: u32) {
  let entries = BLOCKS * top_k;
  if (lane == 0u) {
    atomicStore(&least, 0xffffffffu);
    atomicStore(&most, 0u);
    atomicStore(&taken, 0u);
  }
  workgroupBarrier();
  var low = 0xffffffffu;
  var high = 0u;
  for (var i = lane; i < entries; i += 256u) {
    let key = candidate(slot, top_k, i).x;
    low = min(low, select(key, 0xffffffffu, key == 0u));
    high = max(high, key);
  }
  atomicMin(&least, low);
  atomicMax(&most, high);
  workgroupBarrier();
  var cut = cut_between(atomicLoad(&least), atomicLoad(&most), top_k);
  for (var level = 0u; level < 7u; level++) {
    open_votes(lane);
    for (var i = lane; i < entries; i += 256u) {
      let entry = candidate(slot, top_k, i);
      if (entry.x != 0u) { vote(cut, entry.x, 0xffffffu - entry.y); }
    }
    let digit = count_votes(lane, cut.wanted);
    cut = narrowed(cut, digit);
    if (digit.z == 1u) { break; }
  }
  for (var i = lane; i < entries; i += 256u) {
    let entry = candidate(slot, top_k, i);
    if (entry.x != 0u && is_selected(cut, entry.x, 0xffffffu - entry.y)) {
      let at = atomicAdd(&taken, 1u);
      keys[at] = entry.x;
      tokens[at] = entry.y;
    }
  }
  workgroupBarrier();
}
//# the mass of all entries, or with `below` of those that come before (rank, token)
fn mass_before(entries: u32, below: bool, rank: u32, token: u32) -> vec2<u32> {
  var sum = vec2<u32>(0u, 0u);
  for (var j = 0u; j < entries; j++) {
    if (!below || ranks[j] < rank || (ranks[j] == rank && tokens[j] < token)) { sum = wide_add(sum, masses[j]); }
  }
  return sum;
}

@compute @workgroup_size(256)
fn sample_shortlist(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.x;
  let flags = terms[slot].flags;
  if ((flags & SHORTLISTED) == 0u) { return; }
  zero = terms[slot].zero;
  let top_k = terms[slot].top_k;
  shorten(slot, top_k, lane);
  let here = lane < top_k;
  let entries = select(0u, top_k, here);   // the lanes beyond have nothing to sum
  let key = keys[lane];
  let token = tokens[lane];
  var alive = here;
  if ((flags & (TYPICAL | TOP_P)) != 0u) {
    let distance = distance_of(key, float_of(atomicLoad(&most)), 1.0);
    let mass = mass_of(distance);
    if ((flags & TYPICAL) != 0u) {
      masses[lane] = moment_of(mass, distance);
      workgroupBarrier();
      let moment = mass_before(entries, false, 0u, 0u);
      workgroupBarrier();
      masses[lane] = mass;
      workgroupBarrier();
      let total = mass_before(entries, false, 0u, 0u);
      let rank = surprise(distance, mean_distance(total, moment));
      ranks[lane] = rank;
      workgroupBarrier();
      let goal = wide_add(wide_scaled(total, terms[slot].typical).xy, vec2<u32>(1u, 0u));
      alive = here && wide_less(mass_before(entries, true, rank, token), goal);
      workgroupBarrier();
    }
    masses[lane] = select(vec2<u32>(0u, 0u), mass, alive);
    ranks[lane] = ~key;
    workgroupBarrier();
    if ((flags & TOP_P) != 0u) {
      let scaled = wide_scaled(mass_before(entries, false, 0u, 0u), terms[slot].top_p);
      let goal = wide_add(scaled.xy, vec2<u32>(scaled.z, 0u));
      alive = alive && wide_less(mass_before(entries, true, ~key, token), goal);
    }
    workgroupBarrier();
    if (lane == 0u) { atomicStore(&most, 0u); }
    workgroupBarrier();
    if (alive) { atomicMax(&most, key); }
    workgroupBarrier();
  }
  let highest = float_of(atomicLoad(&most));
  if ((flags & MIN_P) != 0u) { alive = alive && key >= order_key(settled(kept(highest + terms[slot].floor))); }
  var mass = vec2<u32>(0u, 0u);
  if (alive) { mass = mass_of(distance_of(key, highest, terms[slot].rate)); }
  masses[lane] = mass;
  ranks[lane] = 0u;
  workgroupBarrier();
  if (!alive) { return; }
  let total = mass_before(entries, false, 0u, 0u);
  let mark = wide_fraction(random_bits(terms[slot].seed, row_position(slot)), total);
  let before = mass_before(entries, true, 0u, token);
  if (!wide_less(mark, before) && wide_less(mark, wide_add(before, mass))) { keep_choice(slot, token); }
}
