//# Short route, first half: of each block of the vocabulary the top_k largest keys, in no order.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;                // [slot]
@group(0) @binding(1) var<storage, read> logits: array<u32>;                 // [slot, vocabulary], bits of f32
@group(0) @binding(2) var<storage, read_write> shortlist: array<vec2<u32>>;  // [slot, block, 256] (key, token)
//% include "include/sample_adjust.wgsl"
//% include "include/sample_select.wgsl"
var<workgroup> taken: atomic<u32>;

@compute @workgroup_size(256)
fn sample_top(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if ((terms[slot].flags & SHORTLISTED) == 0u) { return; }
  zero = terms[slot].zero;
  let first = group.x * BLOCK + lane;
//% for j in range(16)
  var key${j} = 0u;
  if (first + ${j * 256}u < VOCABULARY) { key${j} = adjusted_key(slot, first + ${j * 256}u); }
//% endfor
  if (lane == 0u) { atomicStore(&taken, 0u); }
  let count = min(terms[slot].top_k, min(BLOCK, VOCABULARY - group.x * BLOCK));
  var cut = Cut(0u, 0u, 24u, count, false);
  for (var level = 0u; level < 7u; level++) {
    atomicStore(&votes[lane], 0u);
    workgroupBarrier();
//% for j in range(16)
    if (key${j} != 0u) { vote(cut, key${j}, 0xffffffu - first - ${j * 256}u); }
//% endfor
    let digit = elected(lane, cut.wanted);
    cut.wanted = digit.y;
    if (cut.tied) { cut.low = (cut.low << 8u) | digit.x; } else { cut.known = (cut.known << 8u) | digit.x; }
    if (digit.z == 1u) { break; }
    if (level == 3u) { cut.tied = true; cut.shift = 24u; }
    cut.shift -= 8u;
  }
  let base = (slot * BLOCKS + group.x) * 256u;
//% for j in range(16)
  if (key${j} != 0u && is_cut(cut, key${j}, 0xffffffu - first - ${j * 256}u)) {
    shortlist[base + atomicAdd(&taken, 1u)] = vec2<u32>(key${j}, first + ${j * 256}u);
  }
//% endfor
  if (lane >= count && lane < terms[slot].top_k) { shortlist[base + lane] = vec2<u32>(0u, 0u); }
}
