//# IQ2_XXS: value = d * (1 + 2 * step) / 8 * q, eight q a code; s holds seven signs of each eight, and the step.
//% from "include/codebook.wgsl" import codebook, eighth_signs, low_code, signed, four_of_eight, element with context
//% macro declare()
${codebook()}
${eighth_signs()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let s${j} = signs_of(${word("s", j, 0)});
let d${j} = ${half("d", j)} * fma(0.25, f32(${word("s", j, 0)} >> 28u), 0.125);
//% endmacro
//% macro fetch(j, k)
//% if k % 8 == 0
let p${j}_${k} = point(${low_code(j, k // 8)});
//% endif
//% if k % 4 == 0
${signed(j, k, four_of_eight(j, k))}
//% endif
//% endmacro
//% macro lift(k)
${8 * (k % 4)}
//% endmacro
//% macro weight(j, k)
${element(j, k)}
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, fma(-64.0, ${s}, ${a}), ${y})
//% endmacro
