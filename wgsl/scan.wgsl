//# The scan of a state space over the tokens of each sequence in a step: y of each token, gated, and what pages keep.
//#
//# A lane does a channel from the sequence's first row of the step to its last, in one order of sums.  It begins with
//# the state that the first token's page has, where that is the one before this token (`convolve` has looked), else with
//# the one the page before ends in, and goes through what the page keeps of its tokens so far.  The last token of a page,
//# and of the step, leaves the state in the page, and how many tokens of it that is after.
//# N4: states / 4.  Of a page `states` holds [N4][INNER], then B [16][SHARED / 4]; `tokens` x and d behind the inputs.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> raw: array<f32>;                // [token, STRIDE]: z from GATE_AT on, d from STEPS_AT on
@group(0) @binding(3) var<storage, read> mixed: array<f32>;              // [token, MIXED]: x; at GOING_AT whether it goes on
@group(0) @binding(4) var<storage, read> shared_of: array<vec4<f32>>;    // [token, SHARED_STRIDE]: B from SHARED_AT on, C
@group(0) @binding(5) var<storage, read> numbers: array<f32>;            // decay [DECAYS, HEADS], skip [HEADS], step bias [HEADS]
@group(0) @binding(6) var<storage, read_write> y: array<f32>;            // [token, OUT]
@group(0) @binding(7) var<storage, read_write> states: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> tokens: array<f32>;       // [page, 16, KEPT], [page, 4]: the tokens its state is after
//% include "include/sequence.wgsl"
//% set PAGE_STATES = N4 * INNER + 4 * SHARED
//% set LOADS = (N4 + 7) // 8 if broadcast else N4

//# the vec4s of B or C that a lane loads: all, or those that it hands round
//% macro loaded(name, source, at)
//% for j in range(LOADS)
${name}${j} = ${source}[${at} + ${"min(lane + %du, %du)" % (8 * j, N4 - 1) if broadcast else "%du" % j}];
//% endfor
//% endmacro
//% macro value(name, n)
${"subgroupBroadcast(%s%d, %du)" % (name, n // 8, n % 8) if broadcast else "%s%d" % (name, n)}
//%- endmacro

fn softplus(x: f32) -> f32 {
  let e = exp(min(x, 20.0));
  let small = e * (1.0 - e * (0.5 - e / 3.0));  // where 1 + e would round most of e away
  return select(select(log(1.0 + e), small, e < 0.02), x, x > 20.0);
}

@compute @workgroup_size(${S})
fn scan(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) index: u32,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let channel = id.x;
  let lane = index % 8u;  // of its subgroup, where those hand values round
  let row = id.y;
  if (channel >= ${INNER}u || follows(row, 1u)) { return; }
  let table = table_of(row);
  let first = position_of(row);
  let head = channel / ${INNER // HEADS}u;
  let part = channel / ${INNER // GROUPS}u * ${N4}u;  // of B and of C: the group's
  let skip = numbers[${DECAYS * HEADS}u + head];
  let bias = numbers[${(DECAYS + 1) * HEADS}u + head];
//% if DECAYS == 1
  let decay = numbers[head];
//% else
//% for n in range(N4)
  let decay${n} = vec4<f32>(numbers[${4 * n * HEADS}u + head], numbers[${(4 * n + 1) * HEADS}u + head],
                            numbers[${(4 * n + 2) * HEADS}u + head], numbers[${(4 * n + 3) * HEADS}u + head]);
//% endfor
//% endif
  let going = mixed[row * ${MIXED}u + ${GOING_AT}u] > 0.5;
  var at = select(first / 16u * 16u, first, going);  // a position
  let before = page_of(table, select(max(at, 1u) - 1u, first, going)) * ${PAGE_STATES}u + channel;
//% for n in range(N4)
  var s${n} = vec4<f32>(0.0);
//% endfor
  if (at > 0u) {
//% for n in range(N4)
    s${n} = states[before + ${n * INNER}u];
//% endfor
  }
  var now = row;  // the row of position `at`, once it has one
  var more = true;
  while (more) {
    let page = page_of(table, at);
    let token = token_in(page, at) + ${CHANNELS}u;
    let kept = page * ${PAGE_STATES}u + ${N4 * INNER}u + at % 16u * ${SHARED // 4}u + part;
    let given = now * ${SHARED_STRIDE}u + ${SHARED_AT}u + part;
    var x = 0.0;
    var d = 0.0;
//% for j in range(LOADS)
    var b${j} = vec4<f32>(0.0);
    var c${j} = vec4<f32>(0.0);
//% endfor
    if (at < first) {
      x = tokens[token + channel];
      d = tokens[token + ${INNER}u + head];
      ${loaded("b", "states", "kept")}
    } else {
      x = mixed[now * ${MIXED}u + channel];
      d = softplus(raw[now * ${STRIDE}u + ${STEPS_AT}u + head] + bias);
      ${loaded("b", "shared_of", "given")}
      ${loaded("c", "shared_of", "given + %du" % (SHARED // 4))}
      tokens[token + channel] = x;
      if (channel % ${INNER // HEADS}u == 0u) { tokens[token + ${INNER}u + head] = d; }
//% if broadcast
      if (channel % ${INNER // GROUPS}u < 8u) {
//% for j in range(LOADS)
        if (lane + ${8 * j}u < ${N4}u) { states[kept + lane + ${8 * j}u] = b${j}; }
//% endfor
      }
//% else
      if (channel % ${INNER // GROUPS}u == 0u) {
//% for n in range(N4)
        states[kept + ${n}u] = b${n};
//% endfor
      }
//% endif
    }
    let dx = vec4<f32>(d * x);
//% if DECAYS == 1
    let fade = exp(d * decay);
//% endif
    var sum = vec4<f32>(0.0);
//% for n in range(N4)
    s${n} = fma(dx, ${value("b", n)}, ${"fade" if DECAYS == 1 else "exp(d * decay%d)" % n} * s${n});
    sum = fma(s${n}, ${value("c", n)}, sum);
//% endfor
    at += 1u;
    if (at > first) {
      let z = raw[now * ${STRIDE}u + ${GATE_AT}u + channel];
      y[now * ${OUT}u + channel] = fma(skip, x, (sum.x + sum.y) + (sum.z + sum.w)) * silu(z);
      now += 1u;
      more = now < groups.y && table_of(min(now, groups.y - 1u)) == table && position_of(min(now, groups.y - 1u)) == at;
      if (!more || at % 16u == 0u) {
        let leave = page * ${PAGE_STATES}u + channel;
//% for n in range(N4)
        states[leave + ${n * INNER}u] = s${n};
//% endfor
        if (channel == 0u) { tokens[count_at(page)] = f32((at - 1u) % 16u + 1u); }
      }
    }
  }
}
