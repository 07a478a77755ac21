//# The token of each output slot: kept in the ring, and the slot's next row (token, position + 1, tables).
//# Greedy takes the best tile (lowest token on ties); sampled slots take what `sample` chose.
//# Where no logit is a number there is no token: 0xffffffff, which the host refuses.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
//% if greedy
@group(0) @binding(2) var<storage, read> best: array<vec2<u32>>;  // [slot, tile] (value's bits, token)
//% else
@group(0) @binding(2) var<storage, read> chosen: array<u32>;      // [slot]
@group(0) @binding(3) var<storage, read> logits: array<u32>;      // [slot, vocabulary], bits of f32
//% endif
//% if greedy
var<workgroup> tops: array<f32, 64>;
var<workgroup> tokens: array<u32, 64>;
//% endif

@compute @workgroup_size(${64 if greedy else 1})
fn pick(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = group.x;
//% if greedy
  var top = -3.4e38;
  var token = 0xffffffffu;
  for (var i = lane; i < dims.partials_out; i += 64u) {
    let p = best[slot * dims.partials_out + i];
    let v = bitcast<f32>(p.x);
    if (v > top || (v == top && p.y < token)) { top = v; token = p.y; }
  }
  tops[lane] = top;
  tokens[lane] = token;
  workgroupBarrier();
  for (var step = 32u; step > 0u; step >>= 1u) {
    if (lane < step) {
      let v = tops[lane + step];
      let n = tokens[lane + step];
      if (v > tops[lane] || (v == tops[lane] && n < tokens[lane])) { tops[lane] = v; tokens[lane] = n; }
    }
    workgroupBarrier();
  }
  if (lane != 0u) { return; }
  token = tokens[0];
//% else
  //# what is no finite number is drawn only where nothing else can be
  let exponent = logits[slot * dims.vocabulary + chosen[slot]] & 0x7f800000u;
  let token = select(chosen[slot], 0xffffffffu, exponent == 0x7f800000u);
//% endif
  let row = dims.rows_at + state[dims.outputs_at + slot] * 4u;
  let position = state[row + 1u];
  let table = state[row + 2u];
  let window_table = state[row + 3u];
  let at = ${SLOTS_AT}u + slot * 4u;
  let taken = state[${TAKEN_AT}u + slot];
  state[dims.ring_at + (taken & ${RING - 1}u) * ${SLOTS}u + slot] = token;
  state[${TAKEN_AT}u + slot] = taken + 1u;
  state[at] = token;
  state[at + 1u] = position + 1u;
  state[at + 2u] = table;
  state[at + 3u] = window_table;
}
