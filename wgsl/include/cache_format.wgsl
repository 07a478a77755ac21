//# How four dimensions of a key or value are typed in the cache, how a pool of them is bound, read and written.
//% from "include/rows.wgsl" import rows_in, rows_out with context
//% macro element(format)
${{"f32": "vec4<f32>", "f16": "vec2<u32>", "q8": "u32"}[format]}
//% endmacro
//% macro pool_in(binding, name, format)
//% if format == "f32"
${rows_in(binding, name)}
//% else
@group(0) @binding(${binding}) var<storage, read> ${name}: array<${element(format)}>;
//% endif
//% endmacro
//% macro pool_out(binding, name, format)
//% if format == "f32"
${rows_out(binding, name)}
//% else
@group(0) @binding(${binding}) var<storage, read_write> ${name}: array<${element(format)}>;
fn put_${name}(i: u32, v: ${element(format)}) { ${name}[i] = v; }
//% endif
//% endmacro
//% macro unpacked(format, name, index)
${{"f32": "%s_at(%s)", "f16": "from_halves(%s[%s])", "q8": "from_bytes(%s[%s])"}[format] % (name, index)}
//% endmacro
