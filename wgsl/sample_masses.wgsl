//# Whole route, after all filters: the mass of each block of the vocabulary.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;    // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_find.wgsl"
//% include "include/sample_final.wgsl"

@compute @workgroup_size(256)
fn sample_masses(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if ((terms[slot].flags & SHORTLISTED) != 0u) { return; }
  recall(slot, 3u);
  let most = final_top(slot);
  let least = least_key(slot, most);
  var mass = vec2<u32>(0u, 0u);
  let first = group.x * BLOCK + lane;
  var hits = 0u;   // of the lane's sixteen tokens: few are left when a filter is on
//% for j in range(16)
  if (is_final(slot, first + ${j * 256}u, least)) { hits |= ${2 ** j}u; }
//% endfor
  for (; hits != 0u; hits &= hits - 1u) {
    mass = wide_add(mass, final_mass(slot, first + firstTrailingBit(hits) * 256u, most));
  }
  let sum = total_of(mass, lane);
  if (lane == 0u) { put_wide(slot, BLOCK_MASSES + group.x * 2u, sum); }
}
