//# Whole route, the end: the draw finds its block, then its token.  A slot a workgroup.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
//% include "include/sample_row.wgsl"
@group(0) @binding(5) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_prefix.wgsl"
//% include "include/sample_final.wgsl"
//% include "include/sample_philox.wgsl"
var<workgroup> found: vec3<u32>;   // block, and the wide mark within it

@compute @workgroup_size(256)
fn sample_draw(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.x;
  if ((terms[slot].flags & SHORTLISTED) != 0u) { return; }
  recall(slot, 3u);
  let most = final_top(slot);
  let least = least_key(slot, most);
  var mass = vec2<u32>(0u, 0u);
  if (lane < BLOCKS) { mass = wide_of(slot, BLOCK_MASSES + lane * 2u); }
  let blocks = sums_over(mass, lane);
  let mark = wide_fraction(random_bits(terms[slot].seed, row_position(slot)), blocks.total);
  if (!wide_less(mark, blocks.before) && wide_less(mark, wide_add(blocks.before, mass))) {
    found = vec3<u32>(lane, wide_subtract(mark, blocks.before));
  }
  let block = workgroupUniformLoad(&found);
  let first = block.x * BLOCK + lane * 16u;
  var own = vec2<u32>(0u, 0u);
  for (var j = 0u; j < 16u; j++) { own = wide_add(own, final_mass(slot, first + j, most, least)); }
  let lanes = sums_over(own, lane);
  if (!wide_less(block.yz, lanes.before) && wide_less(block.yz, wide_add(lanes.before, own))) {
    var sum = lanes.before;
    for (var j = 0u; j < 16u; j++) {
      sum = wide_add(sum, final_mass(slot, first + j, most, least));
      if (wide_less(block.yz, sum)) {
        keep_choice(slot, first + j);
        break;
      }
    }
  }
  if (lane < TOP_K_AT) { put_word(slot, lane, 0u); }
}
