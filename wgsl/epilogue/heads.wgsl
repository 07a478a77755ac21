//# y of each head in its part of a row, of which nothing else is written.
//% macro bindings()
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;     // [token, head, rows / 4]
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned${t}) {
//% for v in range(R // 4)
  if (row + ${4 * v}u < dims.row0 + dims.rows) {  // a lane's rows may end behind the last
    y[token${t} * dims.y_stride + head * dims.head_out + row / 4u + ${v}u] = z${t}_${v};
  }
//% endfor
}
//% endmacro
