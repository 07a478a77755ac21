//# What is done to each slot; llamay/sample/terms.py writes it.
struct Terms {
  flags: u32,
  top_k: u32,      // the vocabulary's size: off
  typical: u32,    // fraction times 2^32
  top_p: u32,      // likewise
  floor: f32,      // ln(min_p)
  rate: f32,       // 1 / temperature
  repeat: f32,
  unrepeat: f32,   // 1 / repeat
  presence: f32,
  frequency: f32,
  seed: vec2<u32>,
  last_n: u32,     // tokens the penalties look back on; 0xffffffff: all
  ring_at: u32,    // first cell of the slot's ring
  spare: u32,
  zero: u32,       // zero, which no compiler knows
}
const TYPICAL = 1u;
const TOP_P = 2u;
const MIN_P = 4u;
const PENALTIES = 8u;
const BIAS = 16u;
const SHORTLISTED = 32u;
const VOCABULARY = ${vocabulary}u;
const BLOCK = 4096u;   // tokens a workgroup looks at
const BLOCKS = ${(vocabulary + 4095) // 4096}u;
