//# Whole route: one level of the radix selection of filter `${pick}`: masses by the next digit of the tokens' ranks,
//# ten, eleven and eleven bits from the highest.  A histogram is zero before and after the three levels.
//% if level == 0 and pick == "top_p"
//% set together = true
//% endif
//% include "include/sample_numbers.wgsl"
//% include "include/sample_terms.wgsl"
@group(0) @binding(0) var<storage, read> terms: array<Terms>;              // [slot]
@group(0) @binding(3) var<storage, read> keys: array<u32>;                 // [slot, vocabulary]
@group(0) @binding(5) var<storage, read_write> into: array<atomic<u32>>;   // [slot, bin, low and high]
//% include "include/sample_work.wgsl"
//% include "include/sample_locate.wgsl"
//% from "include/sample_macros.wgsl" import add, locate
//% if level == 0
var<workgroup> lows: array<atomic<u32>, 1024>;
var<workgroup> highs: array<atomic<u32>, 1024>;
//% if pick == "top_p"
var<workgroup> most: atomic<u32>;
//% endif
//% else
@group(0) @binding(6) var<storage, read> coarser: array<vec2<u32>>;        // [slot, bin]
//% endif

fn mass_at(key: u32) -> vec2<u32> { return ${"vec2<u32>(1u, 0u)" if pick == "top_k" else "mass_of(distance_of(key, top, 1.0))"}; }

@compute @workgroup_size(256)
fn sample_histogram(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.y;
  if (!picks(slot)) { return; }
  recall(slot, SETTLED);
  let first = group.x * BLOCK + lane;
//% if level == 0
  for (var bin = lane; bin < 1024u; bin += 256u) {
    atomicStore(&lows[bin], 0u);
    atomicStore(&highs[bin], 0u);
  }
//% if pick == "top_p"
  if (lane == 0u) { atomicStore(&most, 0u); }
//% endif
  workgroupBarrier();
  var largest = 0u;
  for (var token = first; token < min(VOCABULARY, first + BLOCK); token += 256u) {
    let key = keys[slot * VOCABULARY + token];
    if (is_left(key, token)) {
      largest = max(largest, key);
      let mass = mass_at(key);
      if ((mass.x | mass.y) != 0u) {
        ${add("lows", "rank_of(key) >> 22u", "highs", "rank_of(key) >> 22u", "mass")}
      }
    }
  }
//% if pick == "top_p"
  atomicMax(&most, largest);
//% endif
  workgroupBarrier();
  for (var bin = lane; bin < 1024u; bin += 256u) {
    let mass = vec2<u32>(atomicLoad(&lows[bin]), atomicLoad(&highs[bin]));
    if ((mass.x | mass.y) != 0u) {
      let at = (slot * 1024u + bin) * 2u;
      ${add("into", "at", "into", "at + 1u", "mass")}
    }
  }
//% if pick == "top_p"
  if (lane == 0u) { atomicMax(&work[slot * WORK + TOP_LEFT], atomicLoad(&most)); }
//% endif
//% else
//% if level == 1
  ${locate("coarser", 4, "mass_wanted(slot, total())")}
  let known = place_found.bin;
//% else
  ${locate("coarser", 8, "wide_of(slot, PICK_AT + 1u)")}
  let known = (word_of(slot, PICK_AT) << 11u) | place_found.bin;
//% endif
  if (group.x == 0u && lane == 0u) {
    put_word(slot, PICK_AT + ${(level - 1) * 3}u, known);
    put_wide(slot, PICK_AT + ${(level - 1) * 3 + 1}u, place_found.wanted);
  }
  var hits = 0u;   // of the lane's sixteen tokens; few have the known digits
//% for j in range(16)
  {
    let token = first + ${j * 256}u;
    if (token < VOCABULARY) {
      let key = keys[slot * VOCABULARY + token];
      if (is_left(key, token) && (rank_of(key) >> ${22 if level == 1 else 11}u) == known) { hits |= ${2 ** j}u; }
    }
  }
//% endfor
  for (; hits != 0u; hits &= hits - 1u) {
    let key = keys[slot * VOCABULARY + first + firstTrailingBit(hits) * 256u];
    let mass = mass_at(key);
    let at = (slot * 2048u + ((rank_of(key) >> ${11 if level == 1 else 0}u) & 2047u)) * 2u;
    ${add("into", "at", "into", "at + 1u", "mass")}
  }
//% endif
}
