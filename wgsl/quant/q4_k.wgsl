//# Q4_K: value = (d * scale) * q - (dmin * min), a scale and a min for 32 elements.
//% from "include/fields.wgsl" import nibble with context
//% macro open(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro setup(j)
let s${j} = ${bits("s", j)};
let d${j} = dm${j}.x * f32(s${j} & 255u);
let m${j} = dm${j}.y * f32(s${j} >> 8u);
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a}, fma(-m${j}, ${s}, ${y}))
//% endmacro
