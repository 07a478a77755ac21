//# Q2_K: value = (d * scale) * q - (dmin * min), a scale and a min of 4 bits for 16 elements.
//% from "include/fields.wgsl" import in_place_field, field_lift with context
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
//# weights stay where they lie in their word, 2^lift too large; x is scaled to match, which is exact
//% macro lift(k)
${field_lift(k, 2)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_field("q", j, k, 2)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}_${g}, ${a}, fma(-m${j}_${g}, ${s}, ${y}))
//% endmacro
