//# Q4_0: value = d * (q - 8).
//% from "include/fields.wgsl" import nibble with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(-8.0, ${s}, ${a}), ${y})
//% endmacro
