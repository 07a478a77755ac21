//# MXFP4: value = 2^(e - 128) * m, m of 0, 1, 2, 3, 4, 6, 8, 12 and their negatives, by codes from -7 to 7.
//% from "include/tiny_float.wgsl" import tiny_float, before, meant with context
//% macro declare()
${tiny_float()}
//# 2^(e - 128); the two least exponents are below the normal numbers
fn power(e: u32) -> f32 { return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u)); }
//% endmacro
//% macro begin()
${before()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = power((${bits("s", j)} >> (unit % 2u * 8u)) & 255u);
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
${meant(j, k)}
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a}, ${y})
//% endmacro
