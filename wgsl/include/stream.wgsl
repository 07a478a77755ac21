//# The quantised weights, [tile][step][plane][lane] vec4s, in a buffer or row by row in a texture.
//% if textures
@group(0) @binding(1) var w: texture_storage_2d<rgba32uint, read>;
fn stream(i: u32) -> vec4<u32> { return textureLoad(w, vec2<u32>(i & 1023u, i >> 10u)); }
//% else
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
fn stream(i: u32) -> vec4<u32> { return w[i]; }
//% endif
