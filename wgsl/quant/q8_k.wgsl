//# Q8_K: value = d * q, d an f32 for 256 elements.
//% from "include/fields.wgsl" import signed_byte with context
//% macro open(j)
let d${j} = bitcast<f32>(${word("d", j, 0)});
//% endmacro
//% macro setup(j)
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
${signed_byte("q", j, k)}
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a}, ${y})
//% endmacro
