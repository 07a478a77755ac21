//# IQ1_S: value = d * (1 + 2 * step) * (q - 1 + shift), eight q of 0, 1, 2 a code, a shift of an eighth up or down;
//# h holds three high bits of each code, the step and the shift.
//% from "include/codebook.wgsl" import codebook, low_code with context
//% macro declare()
${codebook()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let h${j} = ${bits("h", j)};
let d${j} = ${half("d", j)} * fma(2.0, f32((h${j} >> 12u) & 7u), 1.0);
let b${j} = fma(-0.25, f32(h${j} >> 15u), -0.875);
//% endmacro
//% macro fetch(j, k)
//% if k % 8 == 0
let p${j}_${k} = point(${low_code(j, k // 8)} | ((h${j} ${"<< %du" % (8 - 3 * (k // 8)) if k < 24 else ">> 1u"}) & 1792u));
//% endif
//% endmacro
//% macro lift(k)
${4 * (k % 8)}
//% endmacro
//% macro weight(j, k)
f32(p${j}_${k // 8 * 8} & ${3 * 16 ** (k % 8)}u)
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(b${j}, ${s}, ${a}), ${y})
//% endmacro
