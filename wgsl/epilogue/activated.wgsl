//# activation(y), for the branch without a gate.
//% from "include/rows.wgsl" import rows_out with context
//% macro bindings()
//% if normed
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
//% endif
${rows_out(4, "y")}  // [token, rows / 4]
//% include "include/activations.wgsl"
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned${t}) {
//% for v in range(R // 4)
  put_y(token${t} * dims.y_stride + row / 4u + ${v}u, vec4<f32>(
    ${activation}(z${t}_${v}.x), ${activation}(z${t}_${v}.y), ${activation}(z${t}_${v}.z), ${activation}(z${t}_${v}.w)));
//% endfor
}
//% endmacro
