//# Q5_0: value = d * (q - 16); the fifth bit of element k is bit k of h.
//% from "include/fields.wgsl" import nibble, field with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)} | ${field("h", j, k, 1, 4)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(-16.0, ${s}, ${a}), ${y})
//% endmacro
