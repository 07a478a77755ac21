//# softmax(q k^T) v of one token's ${GQA} query heads that share a kv head, over one split of ${SPLIT} positions.
//#
//# One pass with a running maximum, ${C} positions at a time.  Splits have fixed bounds, so
//# the order of the sum depends on the position alone.  With one split the result is
//# final; with more, `attention_combine` joins what this leaves.  No value is read that the
//# token does not see: its share would be zero, but a page's earlier owner may have left a NaN.
//% from "include/cache_format.wgsl" import element, unpacked with context
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;        // [token, head, dim / 4]
@group(0) @binding(3) var<storage, read> keys: array<${element(key_format)}>;
@group(0) @binding(4) var<storage, read> values: array<${element(value_format)}>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>; // [token, head, dim / 4], or by split
//% if splits
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;  // [split, token, head] (maximum, sum)
//% endif
//% include "include/reduce.wgsl"
//% include "include/pages.wgsl"
//% if not broadcast
var<workgroup> shares: array<f32, ${GQA * C}>;
//% endif

@compute @workgroup_size(${S})
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32,
             @builtin(num_workgroups) groups: vec3<u32>) {
  let head = group.x;
  let token = group.y;
  let position = state[dims.rows_at + token * 4u + 1u];
  let table = state[dims.rows_at + token * 4u + 2u + dims.windowed];
  let split0 = group.z * ${SPLIT}u;
  let end = min(position + 1u, split0 + ${SPLIT}u);
  let seen = select(0u, position + 1u - dims.window, dims.window > 0u && position + 1u > dims.window);
  let begin = max(split0, seen / ${C}u * ${C}u);
  let q_at = token * dims.x_stride + head * ${GQA * D4}u;
//% for h in range(GQA)
  var most${h} = -3.0e38;
  var sum${h} = 0.0;
//% for v in range(VPL)
  var acc${h}_${v} = vec4<f32>(0.0);
//% endfor
//% endfor
  for (var c0 = begin; c0 < end; c0 += ${C}u) {
//% for p in range(TPL)
    let t${p} = c0 + ${p * S}u + lane;
    let page${p} = page_of(table, min(t${p}, position));
    let k${p} = key_at(page${p}, head, t${p}, 0u);
//% for h in range(GQA)
    var z${h}_${p} = 0.0;
//% endfor
//% endfor
//% if broadcast
    for (var d = 0u; d < ${D4}u; d += ${DSTEP}u) {
//% for h in range(GQA)
      let q${h} = q[q_at + ${h * D4}u + d + lane % ${DSTEP}u];
//% endfor
//% for i in range(DSTEP)
//% for p in range(TPL)
      let k${p}_${i} = ${unpacked(key_format, "keys[k" ~ p ~ " + (d + " ~ i ~ "u) * 16u]")};
//% endfor
//% for h in range(GQA)
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
      let k${p}_0 = ${unpacked(key_format, "keys[k" ~ p ~ " + d * 16u]")};
//% endfor
//% for h in range(GQA)
      let q${h} = q[q_at + ${h * D4}u + d];
//% for p in range(TPL)
      z${h}_${p} = fma(k${p}_0.x, q${h}.x, fma(k${p}_0.y, q${h}.y, fma(k${p}_0.z, q${h}.z, fma(k${p}_0.w, q${h}.w, z${h}_${p}))));
//% endfor
//% endfor
    }
//% endif
//% if key_format == "q8"
//% for p in range(TPL)
    let ks${p} = bitcast<f32>(keys[key_scale_at(page${p}, head, t${p})]);
//% for h in range(GQA)
    z${h}_${p} *= ks${p};
//% endfor
//% endfor
//% endif
//% if value_format == "q8"
//% for p in range(TPL)
    let vs${p} = bitcast<f32>(values[value_scale_at(page${p}, head, t${p})]);
//% endfor
//% endif
//% for p in range(TPL)
    let ok${p} = t${p} < end && t${p} >= seen;
//% endfor
//% for h in range(GQA)
//% for p in range(TPL)
//% if softcap
    z${h}_${p} = dims.softcap * tanh(clamp(z${h}_${p} / dims.softcap, -15.0, 15.0));
//% endif
    z${h}_${p} = select(-3.0e38, z${h}_${p}, ok${p});
//% endfor
    let top${h} = max(most${h}, group_max(${"max(z%d_0, z%d_1)" % (h, h) if TPL == 2 else "z%d_0" % h}, lane));
    let fade${h} = exp(max(most${h} - top${h}, -80.0));
    most${h} = top${h};
//% for p in range(TPL)
    let e${h}_${p} = select(0.0, exp(max(z${h}_${p} - top${h}, -80.0)), ok${p});
    let r${h}_${p} = ${"select(0.0, e%d_%d * vs%d, ok%d)" % (h, p, p, p) if value_format == "q8" else "e%d_%d" % (h, p)};
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
    let base = value_at(page_of(table, c0), head, 0u, 0u) + lane;
    let low = max(seen, c0) - c0;
    let high = min(position - c0, 15u);
//% for p in range(TPL)
    {
//% for j in range(S)
      let at${p}_${j} = base + clamp(${p * S + j}u, low, high) * ${D4}u;
//% for v in range(VPL)
      let v${p}_${j}_${v} = ${unpacked(value_format, "values[at%d_%d + %du]" % (p, j, v * S))};
//% endfor
//% for h in range(GQA)
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
      let t = clamp(c0 + j, seen, position);
      let base = value_at(page_of(table, t), head, t, 0u) + lane;
//% for v in range(VPL)
      if (lane + ${v * S}u < ${D4}u) {
        let value = ${unpacked(value_format, "values[" ~ "base + " ~ v * S ~ "u" ~ "]")};
//% for h in range(GQA)
        acc${h}_${v} = fma(value, vec4<f32>(shares[${h * C}u + j]), acc${h}_${v});
//% endfor
      }
//% endfor
    }
    workgroupBarrier();
//% endif
  }
//% for h in range(GQA)
  let total${h} = group_sum(sum${h}, lane);
//% if splits
  let at${h} = (group.z * groups.y + token) * dims.heads + head * ${GQA}u + ${h}u;
  if (lane == 0u) { stats[at${h}] = vec2<f32>(most${h}, total${h}); }
//% for v in range(VPL)
  if (lane + ${v * S}u < ${D4}u) { out[at${h} * ${D4}u + lane + ${v * S}u] = acc${h}_${v}; }
//% endfor
//% else
//% for v in range(VPL)
  if (lane + ${v * S}u < ${D4}u) { out[token * dims.y_stride + (head * ${GQA}u + ${h}u) * ${D4}u + lane + ${v * S}u] = acc${h}_${v} * (1.0 / total${h}); }
//% endfor
//% endif
//% endfor
}
