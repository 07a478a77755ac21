//# The ${used} best of ${experts} experts for each row, by the router's logits, and their weights.
//#
//# With a bias or groups it is by sigmoids with the bias, or by logits, and groups that are left out come last too.
//# Of equal logits the lower expert's comes first; what is no number comes last.  Each round finds what stands
//# behind the last found in that order, so that the choice depends on nothing but the logits.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> scores: array<f32>;            // [token, experts (and the shared one)]
@group(0) @binding(2) var<storage, read_write> chosen: array<u32>;      // [token, used], best first
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;     // [token, used + 1], the shared expert's last
//% if biased
@group(0) @binding(4) var<storage, read> bias: array<f32>;              // [expert]
//% endif
//% include "include/reduce.wgsl"
const NONE = 0xffffffffu;
var<workgroup> parts: array<f32, ${used}>;

//# larger for larger numbers; both zeros are equal, and no number is the least
fn key_of(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let size = bits & 0x7fffffffu;
  return select(select(0x80000000u + size, 0x80000000u - size, bits != size), 0u, size > 0x7f800000u);
}
fn sigmoid(v: f32) -> f32 { return 1.0 / (1.0 + exp(clamp(-v, -80.0, 80.0))); }
//% set apart = biased or groups
//% if apart
var<workgroup> standing: array<u32, ${experts}>;  // keys
fn standing_of(at: u32, e: u32) -> f32 {
  return ${"sigmoid(scores[at + e])" if gating == "sigmoid" else "scores[at + e]"}${" + bias[e]" if biased};
}
fn standing_key(at: u32, e: u32) -> u32 {
  return select(key_of(standing_of(at, e)), 0u, key_of(scores[at + e]) == 0u);  // a sigmoid of no number may be one
}
//% endif
//% if groups
var<workgroup> group_keys: array<u32, ${groups}>;
//% endif

@compute @workgroup_size(${S})
fn route(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = group.y;
  let at = token * dims.x_stride * 4u;
//% if apart
//% if groups
//% set size = experts // groups
  for (var g = lane; g < ${groups}u; g += ${S}u) {
    var first = -3.0e38;
    var second = -3.0e38;
    for (var e = g * ${size}u; e < (g + 1u) * ${size}u; e++) {
      let v = select(-3.0e38, standing_of(at, e), standing_key(at, e) > 0u);
      second = max(second, min(first, v));
      first = max(first, v);
    }
    group_keys[g] = key_of(first${" + second" if best == 2});
  }
  workgroupBarrier();
//% endif
  for (var e = lane; e < ${experts}u; e += ${S}u) {
    var key = standing_key(at, e);
//% if groups
    let mine = e / ${size}u;
    var better = 0u;
    for (var g = 0u; g < ${groups}u; g++) {
      better += select(0u, 1u, group_keys[g] > group_keys[mine] || (group_keys[g] == group_keys[mine] && g < mine));
    }
    key = select(key, 0u, better >= ${groups_used}u);
//% endif
    standing[e] = key;
  }
  workgroupBarrier();
//% endif
  var last_key = NONE;
  var last = 0u;
  var peak = 0.0;
  var sum = 0.0;
  for (var s = 0u; s < ${used}u; s++) {
    var most = 0u;
    var first = NONE;
    for (var e = lane; e < ${experts}u; e += ${S}u) {
      let key = ${"standing[e]" if apart else "key_of(scores[at + e])"};
      let behind = key < last_key || (key == last_key && e > last);
      if (behind && (first == NONE || key > most)) {
        most = key;
        first = e;
      }
    }
    last_key = ~group_min_u32(~most, lane);
    last = group_min_u32(select(NONE, first, most == last_key), lane);
    let v = scores[at + last];
    if (s == 0u) { peak = v; }
//% if gating == "sigmoid"
    let part = sigmoid(v);
//% else
    let part = exp(max(v - peak, -80.0));
//% endif
    sum += part;
    if (lane == 0u) {
      chosen[token * ${used}u + s] = last;
      parts[s] = part;
    }
  }
//% if gating == "softmax" and not normalised
  var own = 0.0;
  for (var e = lane; e < ${experts}u; e += ${S}u) { own += exp(max(scores[at + e] - peak, -80.0)); }
  let share = dims.scale / group_sum(own, lane);
//% elif normalised
  let share = dims.scale / ${"(sum + 1e-20)" if gating == "sigmoid" else "sum"};
//% else
  let share = dims.scale;
//% endif
  workgroupBarrier();
  for (var s = lane; s < ${used}u; s += ${S}u) { weights[token * ${used + 1}u + s] = parts[s] * share; }
  if (lane == 0u) { weights[token * ${used + 1}u + ${used}u] = ${"sigmoid(scores[at + %du])" % experts if varying else "1.0"}; }
}
