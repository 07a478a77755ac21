//# q, k and v: rope, then q to its buffer, k and v into their pages.
//% from "include/cache_format.wgsl" import pool_out with context
//% from "include/rows.wgsl" import rows_out with context
//% macro bindings()
//% if normed
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
//% endif
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
${rows_out(6, "q_out")}  // [token, heads * head_dim / 4]
//% include "include/rope.wgsl"
//% include "include/pages.wgsl"
${pool_out(7, "keys", key_format)}
${pool_out(8, "values", value_format)}
//% include "include/stores.wgsl"
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned) {
//% for v in range(R // 4)
  store_qkv(z${t}_${v}, token${t}, row + ${4 * v}u, 1.0);
//% endfor
}
//% endmacro
