//# activation(gate) * up: of a lane's rows the first half are gate's, the second half up's.
//% from "include/rows.wgsl" import rows_out with context
//% macro bindings()
//% if normed
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
//% endif
//% if R == 8
${rows_out(4, "y")}  // [token, rows / 2]
//% else
@group(0) @binding(4) var<storage, read_write> y: array<vec${R // 2}<f32>>;  // [token, rows / 2]
fn put_y(i: u32, v: vec${R // 2}<f32>) { y[i] = v; }
//% endif
//% include "include/activations.wgsl"
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned${t}) {
  put_y(token${t} * dims.y_stride + row / ${R}u, vec${R // 2}<f32>(
//% for j in range(R // 2)
    ${activation}(z${t}_${j // 4}.${c[j % 4]}) * ${"raised" if activation == "clipped" else ""}(z${t}_${(j + R // 2) // 4}.${c[(j + R // 2) % 4]})${"," if j + 1 < R // 2 else ""}
//% endfor
  ));
}
//% endmacro
