//# Q2_K: value = (d * scale) * q - (dmin * min), a scale and a min of 4 bits for 16 elements.
//% from "include/fields.wgsl" import field with context
//% macro open(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro setup(j)
let s${j} = ${bits("s", j)};
//% for g in range(2)
let d${j}_${g} = dm${j}.x * f32((s${j} >> ${8 * g}u) & 15u);
let m${j}_${g} = dm${j}.y * f32((s${j} >> ${8 * g + 4}u) & 15u);
//% endfor
//% endmacro
//% macro weight(j, k)
f32(${field("q", j, k, 2, 0)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}_${g}, ${a}, fma(-m${j}_${g}, ${s}, ${y}))
//% endmacro
