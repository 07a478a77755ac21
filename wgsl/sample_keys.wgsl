//# Whole route: the ordered key of every token, and the largest.
//% set together = true
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;           // [slot]
@group(0) @binding(1) var<storage, read> logits: array<u32>;            // [slot, vocabulary], bits of f32
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;        // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_adjust.wgsl"
var<workgroup> most: atomic<u32>;

@compute @workgroup_size(256)
fn sample_keys(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if ((terms[slot].flags & SHORTLISTED) != 0u) { return; }
  zero = terms[slot].zero;
  if (lane == 0u) { atomicStore(&most, 0u); }
  workgroupBarrier();
  var largest = 0u;
  for (var j = 0u; j < BLOCK; j += 256u) {
    let token = group.x * BLOCK + j + lane;
    if (token < VOCABULARY) {
      let key = adjusted_key(slot, token);
      keys[slot * VOCABULARY + token] = key;
      largest = max(largest, key);
    }
  }
  atomicMax(&most, largest);
  workgroupBarrier();
  if (lane == 0u) { atomicMax(&work[slot * WORK + TOP], atomicLoad(&most)); }
}
