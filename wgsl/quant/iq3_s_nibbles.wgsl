//# IQ3_S whose codes were looked up when it was loaded: value = d * (1 + 2 * step) * (2 * q - 15), a nibble each; s holds a
//# superblock's steps.
//% from "include/fields.wgsl" import in_place_nibble, nibble_lift with context
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)} * fma(4.0, f32((${word("s", j, 0)} >> (unit % 8u * 4u)) & 15u), 2.0);
//% endmacro
//% macro lift(k)
${nibble_lift(k)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_nibble(j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(-7.5, ${s}, ${a}), ${y})
//% endmacro
