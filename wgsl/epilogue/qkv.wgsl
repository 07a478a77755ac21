//# q, k and v: rope, then q to its buffer, k and v into their pages.
//% macro bindings()
@group(0) @binding(3) var<storage, read> sums: array<f32>;              // [token, partials]
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2<f32>>;       // [position, pair] (cos, sin)
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<f32>>; // [token, heads * head_dim / 4]
@group(0) @binding(7) var<storage, read_write> keys: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> values: array<vec4<f32>>;
//% include "include/rope.wgsl"
//% include "include/pages.wgsl"
//% include "include/stores.wgsl"
//% endmacro
//% macro input_row(token)
${token}
//% endmacro
//% macro finish(t)
if (owned) {
//% for v in range(R // 4)
  store_qkv(z${t}_${v}, token${t}, row + ${4 * v}u);
//% endfor
}
//% endmacro
