//# IQ4_NL: value = d * (what the code means).
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
let d${j} = ${half("d", j)};
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
