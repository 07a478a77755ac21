//# silu(bias + the causal convolution of each channel) of a state space's inputs, which the pages keep for the tokens to come.
//#
//# Tap k of K sees the input K - 1 - k positions before: that of an earlier row of the step where that is the same
//# sequence's, else what a page keeps.  A page's tokens have KEPT values each: the inputs first.  A lane does EACH channels.
//# For `scan` it says whether the page of a row's token has the state after the token before it.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> raw: array<f32>;              // [token, STRIDE]: inputs from INPUTS_AT on
@group(0) @binding(3) var<storage, read> taps: array<f32>;             // [K + 1, CHANNELS]: taps, then the bias
@group(0) @binding(4) var<storage, read_write> mixed: array<f32>;      // [token, MIXED]; what it says at GOING_AT
@group(0) @binding(5) var<storage, read_write> tokens: array<f32>;     // [page, 16, KEPT], [page, 4]: the tokens its state is after
//% include "include/sequence.wgsl"
//% from "include/before.wgsl" import before with context

@compute @workgroup_size(${S})
fn convolve(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let table = table_of(row);
  let position = position_of(row);
  let page = page_of(table, position);
${before(INPUTS_AT)}
//% for e in range(EACH)
  let channel${e} = group.x * ${S * EACH}u + ${S * e}u + lane;
  if (channel${e} < ${CHANNELS}u) {
    var sum = taps[${K * CHANNELS}u + channel${e}];
//% for k in range(K - 1)
//% set back = K - 1 - k
    if (seen${back}) {
      var x = 0.0;
      if (beside${back}) { x = raw[raw${back} + channel${e}]; } else { x = tokens[token${back} + channel${e}]; }
      sum = fma(taps[${k * CHANNELS}u + channel${e}], x, sum);
    }
//% endfor
    let own = raw[row * ${STRIDE}u + ${INPUTS_AT}u + channel${e}];
    sum = fma(taps[${(K - 1) * CHANNELS}u + channel${e}], own, sum);
    mixed[row * ${MIXED}u + channel${e}] = silu(sum);
    tokens[token_in(page, position) + channel${e}] = own;
  }
//% endfor
  if (group.x == 0u && lane == 0u) {
    let inside = position % 16u;
    mixed[row * ${MIXED}u + ${GOING_AT}u] = f32(inside > 0u && !follows(row, 1u) && tokens[count_at(page)] == f32(inside));
  }
}
