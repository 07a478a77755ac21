//# Q3_K: value = (d * scale) * (q - 4), a signed scale for 16 elements; bit k of h is the third bit.
//% from "include/fields.wgsl" import field with context
//% macro open(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro setup(j)
let s${j} = bitcast<i32>(${bits("s", j)});
//% for g in range(2)
let d${j}_${g} = d${j} * f32(extractBits(s${j}, ${8 * g}u, 8u));
//% endfor
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
f32(${field("q", j, k, 2, 0)} | ${field("h", j, k, 1, 2)})
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}_${g}, fma(-4.0, ${s}, ${a}), ${y})
//% endmacro
