//# softmax(q k^T) v of M tokens' GQA query heads that share a kv head, over one split of SPLIT positions.  Where more
//# share it, `pieces` workgroups do.
//#
//# One pass with a running maximum, ${C} positions at a time.  Splits have fixed bounds, so
//# the order of the sum depends on the position alone.  With one split the result is
//# final; with more, `attention_combine` joins what this leaves.  No value is read that no
//# token sees: its share would be zero, but a page's earlier owner may have left a NaN.
//# Tokens that follow each other in one sequence share what is read; a position that one of them does not see adds
//# zero to its sums and so changes no bit.  Where they do not they take turns.
//# With `values_at` the values are what stands in the keys from that vec4 on.
//% from "include/cache_format.wgsl" import pool_in, unpacked with context
//% set V4 = D4 - values_at
//% set values = "keys" if values_at else "values"
//# the query head of this workgroup's place h; a last place too many does the last head again
//% macro query(h)
${"head * %du + %du" % (GQA, h) if pieces == 1 else "min(queries + %du, last_query)" % h}
//% endmacro
//# what one token's heads came to
//% macro written(m)
//% for h in range(m * GQA, m * GQA + GQA)
//% if sinks and not splits
    let sink${h} = sinks[${query(h % GQA) | trim}];
    let peak${h} = max(most${h}, sink${h});
    let share${h} = select(exp(max(most${h} - peak${h}, -80.0)), 1.0, most${h} == peak${h});
    let total${h} = fma(group_sum(sum${h}, lane), share${h}, exp(max(sink${h} - peak${h}, -80.0)));
//% else
    let total${h} = group_sum(sum${h}, lane);
//% endif
//% if splits
    let at${h} = (group.z * groups.y * ${M}u + token${m}) * dims.heads + ${query(h % GQA) | trim};
    if (lane == 0u) { stats[at${h}] = vec2<f32>(most${h}, total${h}); }
//% for v in range(VPL)
    if (lane + ${v * S}u < ${V4}u) { put_out(at${h} * ${V4}u + lane + ${v * S}u, acc${h}_${v}); }
//% endfor
//% else
//% for v in range(VPL)
    if (lane + ${v * S}u < ${V4}u) { put_out(token${m} * dims.y_stride + (${query(h % GQA) | trim}) * ${V4}u + lane + ${v * S}u, acc${h}_${v}${" * share%d" % h if sinks else ""} * (1.0 / total${h})); }
//% endfor
//% endif
//% endfor
//% endmacro
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
//% from "include/rows.wgsl" import rows_in, rows_out with context
${rows_in(2, "q")}  // [token, head, dim / 4]
${pool_in(3, "keys", key_format)}
//% if not values_at
${pool_in(4, "values", value_format)}
//% endif
${rows_out(5, "out")}  // [token, head, dim / 4], or by split
//% if splits
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;  // [split, token, head] (maximum, sum)
//% elif sinks
@group(0) @binding(6) var<storage, read> sinks: array<f32>;          // [head], a logit that leads to no value
//% endif
//% if sloped
@group(0) @binding(7) var<storage, read> slopes: array<f32>;         // [head], of ALiBi
//% endif
//% include "include/reduce.wgsl"
//% include "include/pages.wgsl"
//% if not broadcast
var<workgroup> shares: array<f32, ${M * GQA * C}>;
//% endif

@compute @workgroup_size(${S})
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32,
             @builtin(num_workgroups) groups: vec3<u32>) {
//% if pieces == 1
  let head = group.x;
//% else
  let head = group.x / ${pieces}u;
  let queries = head * (dims.heads / dims.kv_heads) + group.x % ${pieces}u * ${GQA}u;
  let last_query = (head + 1u) * (dims.heads / dims.kv_heads) - 1u;
//% endif
  let split0 = group.z * ${SPLIT}u;
//% for m in range(M)
  let token${m} = group.y * ${M}u + ${m}u;
  let position${m} = state[dims.rows_at + token${m} * 4u + 1u];
  let table${m} = state[dims.rows_at + token${m} * 4u + 2u + dims.windowed];
//% if both_ways
  let last${m} = state[dims.rows_at + token${m} * 4u + 3u] & 0xffffffu;
  let end${m} = min(select(last${m} + 1u, min(last${m} + 1u, position${m} + dims.window), dims.window > 0u), split0 + ${SPLIT}u);
//% else
  let end${m} = min(position${m} + 1u, split0 + ${SPLIT}u);
//% endif
  let seen${m} = select(0u, position${m} + 1u - dims.window, dims.window > 0u && position${m} + 1u > dims.window);
  let begin${m} = max(split0, seen${m} / ${C}u * ${C}u);
//% for h in range(GQA)
  let q_at${m * GQA + h} = token${m} * dims.x_stride + (${query(h) | trim}) * ${D4}u;
//% endfor
//% endfor
//% if sloped
//% for h in range(GQA)
  let slope${h} = slopes[${query(h) | trim}];
//% endfor
//% endif
//% for h in range(M * GQA)
  var most${h} = -3.0e38;
  var sum${h} = 0.0;
//% for v in range(VPL)
  var acc${h}_${v} = vec4<f32>(0.0);
//% endfor
//% endfor
//% if M == 1
  let table = table0;
  let first = seen0;
  let stop = end0;
  for (var c0 = begin0; c0 < stop; c0 += ${C}u) {
//% else
  var together = true;
  var table = table0;
  var first = seen0;
  var stop = end0;
//% for m in range(1, M)
  together = together && table${m} == table0 && position${m} == position0 + ${m}u;
//% endfor
  if (together) {
//% for m in range(1, M)
    first = min(first, seen${m});
    stop = max(stop, end${m});
//% endfor
  }
  var c0 = max(split0, first / ${C}u * ${C}u);
  var turn = 0u;
  loop {
    if (c0 >= stop) {
      if (together) { break; }
//% for m in range(M)
      if (turn == ${m}u) {
        ${written(m)}
      }
//% endfor
      turn++;
      if (turn == ${M}u) { break; }
//% for m in range(1, M)
      if (turn == ${m}u) { table = table${m}; first = seen${m}; stop = end${m}; c0 = begin${m}; }
//% endfor
//# what was read for others times zero need not be zero: they may have left NaNs
//% for h in range(M * GQA)
      most${h} = -3.0e38;
      sum${h} = 0.0;
//% for v in range(VPL)
      acc${h}_${v} = vec4<f32>(0.0);
//% endfor
//% endfor
      continue;
    }
//% for m in range(M)
    let active${m} = together || turn == ${m}u;
//% endfor
//% endif
//% for p in range(TPL)
    let t${p} = c0 + ${p * S}u + lane;
    let page${p} = page_of(table, min(t${p}, stop - 1u));
    let k${p} = key_at(page${p}, head, t${p}, 0u);
//% for h in range(M * GQA)
    var z${h}_${p} = 0.0;
//% endfor
//% endfor
//% if broadcast
    for (var d = 0u; d < ${D4}u; d += ${DSTEP}u) {
//% for h in range(M * GQA)
      let q${h} = q_at(q_at${h} + d + lane % ${DSTEP}u);
//% endfor
//% for i in range(DSTEP)
//% for p in range(TPL)
      let k${p}_${i} = ${unpacked(key_format, "keys", "k" ~ p ~ " + (d + " ~ i ~ "u) * 16u")};
//% endfor
//% for h in range(M * GQA)
      let q${h}_${i} = vec4<f32>(subgroupBroadcast(q${h}.x, ${i}u), subgroupBroadcast(q${h}.y, ${i}u), subgroupBroadcast(q${h}.z, ${i}u), subgroupBroadcast(q${h}.w, ${i}u));
//% for p in range(TPL)
      z${h}_${p} = fma(k${p}_${i}.x, q${h}_${i}.x, fma(k${p}_${i}.y, q${h}_${i}.y, fma(k${p}_${i}.z, q${h}_${i}.z, fma(k${p}_${i}.w, q${h}_${i}.w, z${h}_${p}))));
//% endfor
//% endfor
//% endfor
    }
//% else
    for (var d = 0u; d < ${D4}u; d++) {
//% for p in range(TPL)
      let k${p}_0 = ${unpacked(key_format, "keys", "k" ~ p ~ " + d * 16u")};
//% endfor
//% for h in range(M * GQA)
      let q${h} = q_at(q_at${h} + d);
//% for p in range(TPL)
      z${h}_${p} = fma(k${p}_0.x, q${h}.x, fma(k${p}_0.y, q${h}.y, fma(k${p}_0.z, q${h}.z, fma(k${p}_0.w, q${h}.w, z${h}_${p}))));
//% endfor
//% endfor
    }
//% endif
//% if key_format == "q8"
//% for p in range(TPL)
    let ks${p} = bitcast<f32>(keys[key_scale_at(page${p}, head, t${p})]);
//% for h in range(M * GQA)
    z${h}_${p} *= ks${p};
//% endfor
//% endfor
//% endif
//% if value_format == "q8"
//% for p in range(TPL)
    let vs${p} = ${"ks%d" % p if values_at else "bitcast<f32>(values[value_scale_at(page%d, head, t%d)])" % (p, p)};
//% endfor
//% endif
//% for m in range(M)
//% for p in range(TPL)
    let ok${m}_${p} = ${"active%d && " % m if M > 1 else ""}t${p} < end${m} && t${p} >= seen${m};
//% endfor
//% endfor
//% for h in range(M * GQA)
//% for p in range(TPL)
//% if softcap
    z${h}_${p} = dims.softcap * tanh(clamp(z${h}_${p} / dims.softcap, -15.0, 15.0));
//% endif
//% if sloped
    z${h}_${p} = fma(slope${h % GQA}, -abs(f32(i32(t${p}) - i32(position${h // GQA}))), z${h}_${p});
//% endif
    z${h}_${p} = select(-3.0e38, z${h}_${p}, ok${h // GQA}_${p});
//% endfor
    let top${h} = max(most${h}, group_max(${"max(z%d_0, z%d_1)" % (h, h) if TPL == 2 else "z%d_0" % h}, lane));
    let fade${h} = select(exp(max(most${h} - top${h}, -80.0)), 1.0, most${h} == top${h});
    most${h} = top${h};
//% for p in range(TPL)
    let e${h}_${p} = select(0.0, exp(max(z${h}_${p} - top${h}, -80.0)), ok${h // GQA}_${p});
    let r${h}_${p} = ${"select(0.0, e%d_%d * vs%d, ok%d_%d)" % (h, p, p, h // GQA, p) if value_format == "q8" else "e%d_%d" % (h, p)};
//% if not broadcast
    shares[${h * C + p * S}u + lane] = r${h}_${p};
//% endif
//% endfor
    sum${h} = fma(sum${h}, fade${h}, ${"e%d_0 + e%d_1" % (h, h) if TPL == 2 else "e%d_0" % h});
//% for v in range(VPL)
    acc${h}_${v} *= fade${h};
//% endfor
//% endfor
//% if not broadcast
    workgroupBarrier();
//% endif
//% if broadcast
//# the positions at hand are one page's; of those that are not seen the nearest is read, times zero
//% if values_at
    let base = key_at(page_of(table, c0), head, 0u, 0u) + (lane + ${values_at}u) * 16u;
//% else
    let base = value_at(page_of(table, c0), head, 0u, 0u) + lane;
//% endif
    let low = max(first, c0) - c0;
    let high = min(stop - 1u - c0, 15u);
//% for p in range(TPL)
    {
//% for j in range(S)
      let at${p}_${j} = base + clamp(${p * S + j}u, low, high)${"" if values_at else " * %du" % D4};
//% for v in range(VPL)
      let v${p}_${j}_${v} = ${unpacked(value_format, values, "at%d_%d + %du" % (p, j, v * S * (16 if values_at else 1)))};
//% endfor
//% for h in range(M * GQA)
      let e${h}_${p}_${j} = subgroupBroadcast(r${h}_${p}, ${j}u);
//% for v in range(VPL)
      acc${h}_${v} = fma(v${p}_${j}_${v}, vec4<f32>(e${h}_${p}_${j}), acc${h}_${v});
//% endfor
//% endfor
//% endfor
    }
//% endfor
//% else
    for (var j = 0u; j < ${C}u; j++) {
      let t = clamp(c0 + j, first, stop - 1u);
//% if values_at
      let base = key_at(page_of(table, t), head, t, 0u) + (lane + ${values_at}u) * 16u;
//% else
      let base = value_at(page_of(table, t), head, t, 0u) + lane;
//% endif
//% for v in range(VPL)
      if (lane + ${v * S}u < ${V4}u) {
        let value = ${unpacked(value_format, values, "base + %du" % (v * S * (16 if values_at else 1)))};
//% for h in range(M * GQA)
        acc${h}_${v} = fma(value, vec4<f32>(shares[${h * C}u + j]), acc${h}_${v});
//% endfor
      }
//% endfor
    }
    workgroupBarrier();
//% endif
//% if M > 1
    c0 += ${C}u;
//% endif
  }
//% if M == 1
  ${written(0)}
//% else
  if (together) {
//% for m in range(M)
    ${written(m)}
//% endfor
  }
//% endif
}
