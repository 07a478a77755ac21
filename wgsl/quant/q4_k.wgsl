//# Q4_K: value = (d * scale) * q - (dmin * min), a scale and a min for 32 elements.
//% from "include/fields.wgsl" import in_place_nibble, nibble_lift with context
//% macro open(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//% macro setup(j)
let s${j} = ${bits("s", j)};
let d${j} = dm${j}.x * f32(s${j} & 255u);
let m${j} = dm${j}.y * f32(s${j} >> 8u);
//% endmacro
//# weights stay where they lie in their word, 2^lift too large; x is scaled to match, which is exact
//% macro lift(k)
${nibble_lift(k)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a}, fma(-m${j}, ${s}, ${y}))
//% endmacro
