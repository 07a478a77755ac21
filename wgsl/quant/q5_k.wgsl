//# Q5_K: Q4_K with a fifth bit, bit k of h.
//% from "include/fields.wgsl" import nibble, field with context
//% macro open(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro setup(j)
let s${j} = ${bits("s", j)};
let d${j} = dm${j}.x * f32(s${j} & 255u);
let m${j} = dm${j}.y * f32(s${j} >> 8u);
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
f32(${nibble(j, k)} | ${field("h", j, k, 1, 4)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a}, fma(-m${j}, ${s}, ${y}))
//% endmacro
