//# Joins the splits of `attention`, first to last: sum of e^(m_s - M) acc_s / sum of e^(m_s - M) l_s.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> parts: array<vec4<f32>>;     // [split, token, head, dim / 4]
@group(0) @binding(3) var<storage, read> stats: array<vec2<f32>>;     // [split, token, head] (maximum, sum)
//% from "include/rows.wgsl" import rows_out with context
${rows_out(4, "out")}  // [token, head, dim / 4]
//% if sinks
@group(0) @binding(5) var<storage, read> sinks: array<f32>;           // [head], a logit that leads to no value
//% endif

@compute @workgroup_size(${S})
fn attention_combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32,
                     @builtin(num_workgroups) groups: vec3<u32>) {
  let head = group.x;
  let token = group.y;
//% if both_ways
  let last = state[dims.rows_at + token * 4u + 3u] & 0xffffffu;
//% else
  let last = state[dims.rows_at + token * 4u + 1u];
//% endif
  let count = last / ${SPLIT}u + 1u;
  let stride = (groups.y + ${M - 1}u) / ${M}u * ${M}u * dims.heads;  // `attention` made whole groups of ${M}
  let at = token * dims.heads + head;
  var top = ${"sinks[head]" if sinks else "-3.0e38"};
  for (var s = 0u; s < count; s++) { top = max(top, stats[s * stride + at].x); }
  for (var d = lane; d < ${D4}u; d += ${S}u) {
    var sum = ${"exp(max(sinks[head] - top, -80.0))" if sinks else "0.0"};
    var acc = vec4<f32>(0.0);
    for (var s = 0u; s < count; s++) {
      let stat = stats[s * stride + at];
      let share = select(select(0.0, exp(max(stat.x - top, -80.0)), stat.y > 0.0), 1.0, stat.x == top);
      sum = fma(stat.y, share, sum);
      acc = fma(parts[(s * stride + at) * ${D4}u + d], vec4<f32>(share), acc);
    }
    put_out(token * dims.y_stride + head * ${D4}u + d, acc * (1.0 / sum));
  }
}
