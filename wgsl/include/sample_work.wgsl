//# What the dispatches of the whole route tell each other: `work` is zero before the first and after the last.
//% if together is defined
@group(0) @binding(4) var<storage, read_write> work: array<atomic<u32>>;  // [slot, WORK]
fn word_of(slot: u32, at: u32) -> u32 { return atomicLoad(&work[slot * WORK + at]); }
fn add_wide(slot: u32, at: u32, value: vec2<u32>) {
  let old = atomicAdd(&work[slot * WORK + at], value.x);
  atomicAdd(&work[slot * WORK + at + 1u], value.y + select(0u, 1u, old > 0xffffffffu - value.x));
}
//% else
@group(0) @binding(4) var<storage, read_write> work: array<u32>;          // [slot, WORK]
fn word_of(slot: u32, at: u32) -> u32 { return work[slot * WORK + at]; }
fn put_word(slot: u32, at: u32, value: u32) { work[slot * WORK + at] = value; }
fn put_wide(slot: u32, at: u32, value: vec2<u32>) {
  put_word(slot, at, value.x);
  put_word(slot, at + 1u, value.y);
}
//% endif
fn wide_of(slot: u32, at: u32) -> vec2<u32> { return vec2<u32>(word_of(slot, at), word_of(slot, at + 1u)); }
const TOP = 0u;                // largest key
const TOP_LEFT = 1u;           // largest key that typical left
const MASS = 2u;               // wide: of what typical looks at
const MOMENT = 4u;             // wide: mass times distance of the same
const TOP_K_AT = 8u;           // for each filter eight words: digits and wide wanted after the first level, the same
const TYPICAL_AT = 16u;        // after the second, least rank that stays, bound of the tokens that stay at it
const TOP_P_AT = 24u;
const BLOCK_MASSES = 32u;      // wide, for each block
const WORK = 544u;

//# What the filters before this dispatch left, loaded once an invocation.  `typical`: some slot has that filter.
struct Bounds { least: u32, token: u32, on: bool }
var<private> flags: u32;
var<private> top: f32;
//% if typical
var<private> mean: u32;
//% endif
var<private> by_top_k: Bounds;
//% if typical
var<private> by_typical: Bounds;
//% endif
var<private> by_top_p: Bounds;

fn bounds_of(slot: u32, at: u32, on: bool) -> Bounds { return Bounds(word_of(slot, at + 6u), word_of(slot, at + 7u), on); }
//# `filters`: how many of top-k, typical, top-p have been settled
fn recall(slot: u32, filters: u32) {
  zero = terms[slot].zero;
  flags = terms[slot].flags;
  top = float_of(word_of(slot, TOP));
  by_top_k = bounds_of(slot, TOP_K_AT, filters > 0u && terms[slot].top_k < VOCABULARY);
//% if typical
  by_typical = bounds_of(slot, TYPICAL_AT, filters > 1u && (flags & TYPICAL) != 0u);
//% endif
  by_top_p = bounds_of(slot, TOP_P_AT, filters > 2u && (flags & (TYPICAL | TOP_P)) != 0u);
//% if typical
  mean = 0u;
  if (filters > 0u && (flags & TYPICAL) != 0u) { mean = mean_distance(wide_of(slot, MASS), wide_of(slot, MOMENT)); }
//% endif
}
fn within(bounds: Bounds, rank: u32, token: u32) -> bool {
  return !bounds.on || rank > bounds.least || (rank == bounds.least && token < bounds.token);
}
//% if typical
fn typical_rank(key: u32) -> u32 { return ~surprise(distance_of(key, top, 1.0), mean); }
//% endif
fn is_left(key: u32, token: u32) -> bool {
//% if typical
  if (!within(by_typical, typical_rank(key), token)) { return false; }
//% endif
  return within(by_top_k, key, token) && within(by_top_p, key, token);
}
