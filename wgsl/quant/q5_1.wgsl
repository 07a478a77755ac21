//# Q5_1: value = d * q + m; the fifth bit of element k is bit k of h.
//% from "include/fields.wgsl" import nibble, field with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)} | ${field("h", j, k, 1, 4)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(dm${j}.x, ${a}, fma(dm${j}.y, ${s}, ${y}))
//% endmacro
