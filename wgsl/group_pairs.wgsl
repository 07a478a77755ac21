//# The pairs of row and rank by their experts, in groups of ${MT}: pairs of a group share what is read of an expert.
//#
//# One workgroup counts and places them.  Which pairs of an expert share a group is left to chance and changes no
//# bit: each pair is summed for itself.  NONE stands for the rest of a group, and for groups that are not there.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> chosen: array<u32>;         // [token, used]
@group(0) @binding(2) var<storage, read_write> order: array<u32>;    // [group, ${MT}]: a pair, token * used + rank
const NONE = 0xffffffffu;
var<workgroup> places: array<atomic<u32>, ${experts}>;

@compute @workgroup_size(${S})
fn group_pairs(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32,
               @builtin(num_workgroups) groups: vec3<u32>) {
  if (group.y > 0u) { return; }  // a workgroup for each token was asked for, which says how many there are
  let pairs = groups.y * ${used}u;
  let least = min(pairs, ${experts}u);
  let end = (least + (pairs - least) / ${MT}u) * ${MT}u;  // as many groups as may be needed
  for (var i = lane; i < end; i += ${S}u) { order[i] = NONE; }
  for (var e = lane; e < ${experts}u; e += ${S}u) { atomicStore(&places[e], 0u); }
  workgroupBarrier();
  for (var p = lane; p < pairs; p += ${S}u) { atomicAdd(&places[chosen[p]], 1u); }
  workgroupBarrier();
  if (lane == 0u) {
    var at = 0u;
    for (var e = 0u; e < ${experts}u; e++) {
      let count = atomicLoad(&places[e]);
      atomicStore(&places[e], at);
      at += (count + ${MT - 1}u) / ${MT}u * ${MT}u;
    }
  }
  storageBarrier();
  workgroupBarrier();
  for (var p = lane; p < pairs; p += ${S}u) { order[atomicAdd(&places[chosen[p]], 1u)] = p; }
}
