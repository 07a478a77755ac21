//# One vector for each output row's sequence: ${"the mean of all its rows" if pooling == "mean" else "its first row" if pooling == "first" else "that row itself"}.
//# An output row is the last of its sequence, all of which this step holds: its position tells how many rows lie before it.
//# Rows are added one after the other, so that the sum depends on the sequence alone.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> state: array<u32>;
//% if normed
//% from "include/rows.wgsl" import rows_in with context
${rows_in(2, "x")}                                                  // [token, width / 4], h times the norm's weight
@group(0) @binding(4) var<storage, read> sums: array<f32>;          // [token, partials]
//# each lane adds up all of a row's squares: there are few, and joining lanes would take longer
fn scale_of(row: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < dims.partials; i++) { sum += sums[row * dims.partials + i]; }
  return 1.0 / sqrt(sum / f32(dims.width) + dims.eps);
}
//% else
@group(0) @binding(2) var<storage, read> h: array<f32>;             // [token, width]
//% endif
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;  // [output, width]

//% macro value(row)
//% if normed
(x_at(${row} * (dims.x_stride / 4u) + column / 4u)[column % 4u] * scale_of(${row}))
//% else
h[${row} * dims.x_stride + column]
//% endif
//% endmacro

@compute @workgroup_size(${S})
fn pool(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = state[dims.outputs_at + group.y];
  let before = state[dims.rows_at + row * 4u + 1u];
  let column = group.x * ${S}u + lane;
  if (column >= dims.width) { return; }
//% if pooling == "mean"
  var sum = 0.0;
  for (var i = row - before; i <= row; i++) { sum += ${value("i") | trim}; }
  let value = sum / f32(before + 1u);
//% else
  let value = ${value("(row - before)" if pooling == "first" else "row") | trim};
//% endif
  logits[group.y * dims.y_stride + column] = value;
}
