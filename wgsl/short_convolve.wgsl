//# y = c * the causal convolution of b * x, each channel's own; the pages keep b * x for the tokens to come.
//#
//# Tap k of K sees the token K - 1 - k positions before: an earlier row of the step where that is the same sequence's, else
//# what a page keeps.  The order of the sum is that of the taps.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> raw: array<f32>;              // [token, STRIDE]: b, c, x of KEPT channels each
@group(0) @binding(3) var<storage, read> taps: array<f32>;             // [K, KEPT]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;          // [token, OUT]
@group(0) @binding(5) var<storage, read_write> tokens: array<f32>;     // [page, 16, KEPT]
//% set STATELESS = True
//% include "include/sequence.wgsl"
//% from "include/before.wgsl" import before with context

@compute @workgroup_size(${S})
fn short_convolve(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let table = table_of(row);
  let position = position_of(row);
  let page = page_of(table, position);
${before(0)}
//% for e in range(EACH)
  let channel${e} = group.x * ${S * EACH}u + ${S * e}u + lane;
  if (channel${e} < ${KEPT}u) {
    var sum = 0.0;
//% for k in range(K - 1)
//% set back = K - 1 - k
    if (seen${back}) {
      var x = 0.0;
      if (beside${back}) { x = raw[raw${back} + channel${e}] * raw[raw${back} + ${2 * KEPT}u + channel${e}]; } else { x = tokens[token${back} + channel${e}]; }
      sum = fma(taps[${k * KEPT}u + channel${e}], x, sum);
    }
//% endfor
    let own = raw[row * ${STRIDE}u + channel${e}] * raw[row * ${STRIDE}u + ${2 * KEPT}u + channel${e}];
    sum = fma(taps[${(K - 1) * KEPT}u + channel${e}], own, sum);
    y[row * ${OUT}u + channel${e}] = raw[row * ${STRIDE}u + ${KEPT}u + channel${e}] * sum;
    tokens[token_in(page, position) + channel${e}] = own;
  }
//% endfor
}
