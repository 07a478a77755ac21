//# IQ4_XS: value = (d * scale) * (what the code means), a signed scale of 6 bits for 32 elements: 4 in s, 2
//# in the high half of dh.
//% from "include/curve.wgsl" import curve, before, meant with context
//% macro declare()
${curve()}
//% endmacro
//% macro begin()
${before()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let s${j} = ((${word("s", j, 0)} >> (unit % 8u * 4u)) & 15u) | (((${word("dh", j, 0)} >> (16u + unit % 8u * 2u)) & 3u) << 4u);
let d${j} = unpack2x16float(${word("dh", j, 0)}).x * (f32(s${j}) - 32.0);
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
