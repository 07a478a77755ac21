//# Rows of vec4<f32>s that linears read: a buffer, or where `texels` names the binding a texture, 1024 vec4s a line.
//# Mesa's software adapter loads a texel eightfold in one gather, a buffer's word in a loop over its lanes.
//% macro rows_in(binding, name)
//% if name in texels.split()
@group(0) @binding(${binding}) var ${name}: texture_storage_2d<rgba32float, read>;
fn ${name}_at(i: u32) -> vec4<f32> { return textureLoad(${name}, vec2<u32>(i & 1023u, i >> 10u)); }
//% else
@group(0) @binding(${binding}) var<storage, read> ${name}: array<vec4<f32>>;
fn ${name}_at(i: u32) -> vec4<f32> { return ${name}[i]; }
//% endif
//% endmacro
//% macro rows_out(binding, name)
//% if name in texels.split()
@group(0) @binding(${binding}) var ${name}: texture_storage_2d<rgba32float, write>;
fn put_${name}(i: u32, v: vec4<f32>) { textureStore(${name}, vec2<u32>(i & 1023u, i >> 10u), v); }
//% else
@group(0) @binding(${binding}) var<storage, read_write> ${name}: array<vec4<f32>>;
fn put_${name}(i: u32, v: vec4<f32>) { ${name}[i] = v; }
//% endif
//% endmacro
