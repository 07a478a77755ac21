//# IQ3_XXS: value = d * (1 + 2 * step) / 4 * q, four q a code; s holds seven signs of each eight, and the step.
//% from "include/codebook.wgsl" import codebook, eighth_signs, low_code, signed, element with context
//% macro declare()
${codebook()}
${eighth_signs()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let s${j} = signs_of(${word("s", j, 0)});
let d${j} = ${half("d", j)} * fma(0.5, f32(${word("s", j, 0)} >> 28u), 0.25);
//% endmacro
//% macro fetch(j, k)
//% if k % 4 == 0
${signed(j, k, "point(" ~ low_code(j, k // 4) ~ ")")}
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
