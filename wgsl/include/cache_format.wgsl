//# How four dimensions of a key or value are typed in the cache, and read from it.
//% macro element(format)
${{"f32": "vec4<f32>", "f16": "vec2<u32>", "q8": "u32"}[format]}
//% endmacro
//% macro unpacked(format, word)
${{"f32": "%s", "f16": "from_halves(%s)", "q8": "from_bytes(%s)"}[format] % word}
//% endmacro
