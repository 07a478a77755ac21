//# activation(gate) * up: of a lane's rows the first half are gate's, the second half up's.
//% macro bindings()
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
@group(0) @binding(4) var<storage, read_write> y: array<vec${R // 2}<f32>>;  // [token, rows / 2]
//% include "include/activations.wgsl"
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned) {
  y[token${t} * dims.y_stride + row / ${R}u] = vec${R // 2}<f32>(
//% for j in range(R // 2)
    ${activation}(z${t}_${j // 4}.${c[j % 4]}) * z${t}_${(j + R // 2) // 4}.${c[(j + R // 2) % 4]}${"," if j + 1 < R // 2 else ""}
//% endfor
  );
}
//% endmacro
