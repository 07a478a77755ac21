//# TQ2_0: value = d * (q - 1), one d for 256 elements.
//% from "include/fields.wgsl" import in_place_field, field_lift with context
//% macro open(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro setup(j)
//% endmacro
//# weights stay where they lie in their word, 2^lift too large; x is scaled to match, which is exact
//% macro lift(k)
${field_lift(k, 2)}
//% endmacro
//% macro weight(j, k)
f32(${in_place_field("q", j, k, 2)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a} - ${s}, ${y})
//% endmacro
