//# Whole route, the end: the draw finds its block, its sixteen tokens, its token.  A slot a workgroup.
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
//% include "include/sample_row.wgsl"
@group(0) @binding(5) var<storage, read> keys: array<u32>;       // [slot, vocabulary]
//% include "include/sample_work.wgsl"
//% include "include/sample_find.wgsl"
//% include "include/sample_final.wgsl"
//% include "include/sample_philox.wgsl"
var<workgroup> block: Found;

@compute @workgroup_size(256)
fn sample_draw(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.x;
  if ((terms[slot].flags & SHORTLISTED) != 0u) { return; }
  recall(slot, 3u);
  let most = final_top(slot);
  let least = least_key(slot, most);
  var mass = vec2<u32>(0u, 0u);
  if (lane < BLOCKS) { mass = wide_of(slot, BLOCK_MASSES + lane * 2u); }
  lay_out(mass, lane);
  if (lane == 0u) { block = search(wide_fraction(random_bits(terms[slot].seed, row_position(slot)), total())); }
  let drawn = workgroupUniformLoad(&block);
  let first = drawn.lane * BLOCK + lane * 16u;
  mass = vec2<u32>(0u, 0u);
  for (var token = first; token < first + 16u; token++) {
    if (is_final(slot, token, least)) { mass = wide_add(mass, final_mass(slot, token, most)); }
  }
  lay_out(mass, lane);
  if (lane == 0u) {
    let found = search(drawn.rest);
    var token = drawn.lane * BLOCK + found.lane * 16u;
    var rest = found.rest;
    for (var j = 1u; j < 16u; j++) {
      if (is_final(slot, token, least)) {
        let own = final_mass(slot, token, most);
        if (wide_less(rest, own)) { break; }
        rest = wide_subtract(rest, own);
      }
      token += 1u;
    }
    keep_choice(slot, token);
  }
  if (lane < TOP_K_AT) { put_word(slot, lane, 0u); }
}
