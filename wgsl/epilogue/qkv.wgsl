//# q, k and v: rope, then q to its buffer, k and v into their pages.
//% from "include/cache_format.wgsl" import element with context
//% macro bindings()
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<f32>>; // [token, heads * head_dim / 4]
//% include "include/rope.wgsl"
//% include "include/pages.wgsl"
@group(0) @binding(7) var<storage, read_write> keys: array<${element(key_format)}>;
@group(0) @binding(8) var<storage, read_write> values: array<${element(value_format)}>;
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
