//# Q4_0: value = d * (q - 8).
//% from "include/fields.wgsl" import in_place_nibble, nibble_lift with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)};
//% endmacro
//# weights stay where they lie in their word, 2^lift too large; x is scaled to match, which is exact
//% macro lift(k)
${nibble_lift(k)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(-8.0, ${s}, ${a}), ${y})
//% endmacro
