//# The seam to the step: where a slot's row stands, and what is kept of the token chosen for it.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> terms: array<Terms>;         // [slot]
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> chosen: array<u32>;    // [slot]
//% if penalties
@group(0) @binding(6) var<storage, read_write> counts: array<u32>;    // [slot, vocabulary]
@group(0) @binding(7) var<storage, read_write> recent: array<u32>;    // rings of each slot's last last_n tokens
//% endif

fn row_position(slot: u32) -> u32 { return state[dims.rows_at + state[dims.outputs_at + slot] * 4u + 1u]; }

//# by one invocation of the slot
fn keep_choice(slot: u32, token: u32) {
  chosen[slot] = token;
//% if penalties
  if ((terms[slot].flags & PENALTIES) == 0u) { return; }
  let last_n = terms[slot].last_n;
  if (last_n != 0xffffffffu) {
    let cell = terms[slot].ring_at + (row_position(slot) + 1u) % last_n;
    let leaving = recent[cell];
    if (leaving < VOCABULARY) { counts[slot * VOCABULARY + leaving] -= 1u; }
    recent[cell] = token;
  }
  counts[slot * VOCABULARY + token] += 1u;
//% endif
}
