//# Short route, first half: of each block of the vocabulary the top_k largest keys, in no order.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;                // [slot]
@group(0) @binding(1) var<storage, read> logits: array<u32>;                 // [slot, vocabulary], bits of f32
@group(0) @binding(2) var<storage, read_write> shortlist: array<vec2<u32>>;  // [slot, block, 256] (key, token)
//% include "include/sample_adjust.wgsl"
//% include "include/sample_select.wgsl"
var<workgroup> taken: atomic<u32>;
var<private> mine: array<u32, 16>;   // keys of the lane's tokens, zero beyond the vocabulary

@compute @workgroup_size(256)
fn sample_top(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if ((terms[slot].flags & SHORTLISTED) == 0u) { return; }
  zero = terms[slot].zero;
  if (lane == 0u) {
    atomicStore(&least, 0xffffffffu);
    atomicStore(&most, 0u);
    atomicStore(&taken, 0u);
  }
  let first = group.x * BLOCK + lane;
  let count = min(terms[slot].top_k, min(BLOCK, VOCABULARY - group.x * BLOCK));
  var largest = 0u;
//% for j in range(16)
  mine[${j}] = 0u;
  if (first + ${j * 256}u < VOCABULARY) { mine[${j}] = adjusted_key(slot, first + ${j * 256}u); }
  largest = max(largest, mine[${j}]);
//% endfor
  workgroupBarrier();
  if (largest != 0u) {
    atomicMin(&least, largest);
    atomicMax(&most, largest);
  }
  open_votes(lane);
  //# At least `count` tokens reach the count-th largest of the lanes' largest, so only those that do are looked at.
  let highest = atomicLoad(&most);
  var cut = cut_between(atomicLoad(&least), highest, count);
  if (largest != 0u) { vote(cut, largest, 0u); }
  cut = narrowed(cut, count_votes(lane, count));
  let floor = cut.base + (cut.known << cut.upper);
  var hits = 0u;
//% for j in range(16)
  if (mine[${j}] >= floor) { hits |= ${2 ** j}u; }
//% endfor
  cut = cut_between(floor, highest, count);
  for (var level = 0u; level < 7u; level++) {
    open_votes(lane);
    for (var rest = hits; rest != 0u; rest &= rest - 1u) {
      let j = firstTrailingBit(rest);
      vote(cut, mine[j], 0xffffffu - first - j * 256u);
    }
    let digit = count_votes(lane, cut.wanted);
    cut = narrowed(cut, digit);
    if (digit.z == 1u) { break; }
  }
  let base = (slot * BLOCKS + group.x) * 256u;
  for (var rest = hits; rest != 0u; rest &= rest - 1u) {
    let j = firstTrailingBit(rest);
    let token = first + j * 256u;
    if (is_selected(cut, mine[j], 0xffffffu - token)) { shortlist[base + atomicAdd(&taken, 1u)] = vec2<u32>(mine[j], token); }
  }
  if (lane >= count && lane < terms[slot].top_k) { shortlist[base + lane] = vec2<u32>(0u, 0u); }
}
