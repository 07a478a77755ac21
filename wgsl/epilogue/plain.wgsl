//# y as it is (normed when the input is), for the kernels that finish the work.
//% macro bindings()
//% if normed
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
//% endif
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;     // [token, rows / 4]
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned${t}) {
//% for v in range(R // 4)
  y[token${t} * dims.y_stride + row / 4u + ${v}u] = z${t}_${v};
//% endfor
}
//% endmacro
