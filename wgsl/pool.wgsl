//# One vector for each output row's sequence: ${"the mean of all its rows" if pooling == "mean" else "its first row" if pooling == "first" else "that row itself"}.
//# An output row is the last of its sequence, all of which this step holds: its position tells how many rows lie before it.
//# Rows are added one after the other, so that the sum depends on the sequence alone.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> h: array<f32>;             // [token, width]
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;  // [output, width]

@compute @workgroup_size(${S})
fn pool(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = state[dims.outputs_at + group.y];
  let before = state[dims.rows_at + row * 4u + 1u];
  let column = group.x * ${S}u + lane;
  if (column >= dims.width) { return; }
//% if pooling == "mean"
  var sum = 0.0;
  for (var i = row - before; i <= row; i++) { sum += h[i * dims.x_stride + column]; }
  let value = sum / f32(before + 1u);
//% else
  let value = h[${"(row - before)" if pooling == "first" else "row"} * dims.x_stride + column];
//% endif
  logits[group.y * dims.y_stride + column] = value;
}
