//# The numbers of one dispatch, written once when the command list is built.
struct Dims {
  steps: u32,        // inner steps of a tile
  rows: u32,         // rows of this stream
  row0: u32,         // its first row in the whole linear
  tile0: u32,        // its first tile in the whole linear
  x_stride: u32,     // vec4s from one token's input to the next
  y_stride: u32,     // vec4s (f32s for logits) from one token's output to the next
  partials: u32,     // partial sums of squares a token has
  width: u32,        // elements of a normed row
  eps: f32,
  scale: f32,
  softcap: f32,
  heads: u32,
  kv_heads: u32,
  head_dim: u32,
  rope_half: u32,    // rotated pairs of a head
  window: u32,       // 0: none
  rows_at: u32,      // word of the state where the token rows begin
  outputs_at: u32,   // word where the list of output rows begins
  ring_at: u32,      // word where sampled tokens are kept
  slots: u32,        // output slots of the step
  vocabulary: u32,
  partials_out: u32, // partial results (tiles) a head output has
  units: u32,        // units of 32 elements of a row of x
  windowed: u32,     // 1: the layer's pages are those of the window group
  expert0: u32,      // first expert of this stream
  experts: u32,      // experts of this stream
  tiles: u32,        // tiles of an expert in it
  spread: u32,       // pairs of row and rank that read one row of x
  head_in: u32,      // vec4s from one head's part of an input row to the next
  head_out: u32,     // vec4s from one head's part of an output row to the next
}
