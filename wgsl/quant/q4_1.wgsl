//# Q4_1: value = d * q + m.
//% from "include/fields.wgsl" import nibble with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(dm${j}.x, ${a}, fma(dm${j}.y, ${s}, ${y}))
//% endmacro
