//# h += scale * y; then h * (the next norm's weight), and this tile's share of sum(h^2).
//% from "include/rows.wgsl" import rows_out with context
//% macro bindings()
@group(0) @binding(3) var<storage, read> next: array<vec4<f32>>;        // [width / 4]
@group(0) @binding(4) var<storage, read_write> h: array<vec4<f32>>;     // [token, width / 4]
${rows_out(5, "hw")}  // [token, width / 4]
@group(0) @binding(6) var<storage, read_write> sums: array<f32>;        // [token, partials]
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
{
  var q = 0.0;
  if (owned) {
//% for v in range(R // 4)
    let i${v} = row / 4u + ${v}u;
    let a${v} = token${t} * dims.y_stride + i${v};
    let h${v} = fma(z${t}_${v}, vec4<f32>(dims.scale), h[a${v}]);
    h[a${v}] = h${v};
    put_hw(a${v}, h${v} * next[i${v}]);
    q = fma(h${v}.x, h${v}.x, q); q = fma(h${v}.y, h${v}.y, q); q = fma(h${v}.z, h${v}.z, q); q = fma(h${v}.w, h${v}.w, q);
//% endfor
  }
  q = group_sum(q, lane);
  if (lane == 0u) { sums[token${t} * dims.partials + dims.tile0 + tile] = q; }
}
//% endmacro
