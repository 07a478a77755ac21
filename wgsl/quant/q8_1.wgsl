//# Q8_1: value = d * q.
//% from "include/fields.wgsl" import signed_byte with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)};
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
