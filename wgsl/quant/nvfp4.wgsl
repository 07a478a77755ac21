//# NVFP4: value = d * m, for 16 elements; m of 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. A byte of s is d's exponent,
//# less 116, and the first three bits of its fraction.
//% from "include/tiny_float.wgsl" import tiny_float, before, meant with context
//% macro declare()
${tiny_float()}
//% endmacro
//% macro begin()
${before()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
//% for g in range(2)
let d${j}_${g} = bitcast<f32>((${bits("s", j)} & ${255 * 256 ** g}u) << ${20 - 8 * g}u) * ${2 ** 116}.0;
//% endfor
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
${meant(j, k)}
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}_${g}, ${a}, ${y})
//% endmacro
