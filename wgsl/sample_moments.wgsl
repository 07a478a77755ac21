//# Whole route, before typical: the mass of the tokens it looks at, and its moment, whose ratio is the mean surprise.
//% set together = true
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;    // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_find.wgsl"

@compute @workgroup_size(256)
fn sample_moments(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if ((terms[slot].flags & (SHORTLISTED | TYPICAL)) != TYPICAL) { return; }
  recall(slot, 1u);
  var mass = vec2<u32>(0u, 0u);
  var moment = vec2<u32>(0u, 0u);
  for (var j = 0u; j < BLOCK; j += 256u) {
    let token = group.x * BLOCK + j + lane;
    if (token < VOCABULARY) {
      let key = keys[slot * VOCABULARY + token];
      if (is_left(key, token)) {
        let distance = distance_of(key, top, 1.0);
        let own = mass_of(distance);
        mass = wide_add(mass, own);
        moment = wide_add(moment, moment_of(own, distance));
      }
    }
  }
  let masses = total_of(mass, lane);
  let moments = total_of(moment, lane);
  if (lane == 0u) {
    add_wide(slot, MASS, masses);
    add_wide(slot, MOMENT, moments);
  }
}
