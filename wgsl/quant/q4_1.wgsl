//# Q4_1: value = d * q + m.
//% from "include/fields.wgsl" import in_place_nibble, nibble_lift with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let dm${j} = unpack2x16float(${word("dm", j, 0)});
//% endmacro
//# weights stay where they lie in their word, 2^lift too large; x is scaled to match, which is exact
//% macro lift(k)
${nibble_lift(k)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(dm${j}.x, ${a}, fma(dm${j}.y, ${s}, ${y}))
//% endmacro
