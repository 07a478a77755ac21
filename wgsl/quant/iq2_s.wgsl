//# IQ2_S: value = d * (1 + 2 * step) / 8 * q, eight q a code, a step for 16; s holds the signs, h two high bits of each
//# code and the steps.
//% from "include/codebook.wgsl" import codebook, low_code, signed, four_of_eight, element with context
//% macro declare()
${codebook()}
//% endmacro
//% macro open(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro setup(j)
let s${j} = ${word("s", j, 0)};
let h${j} = ${bits("h", j)};
//% for g in range(2)
let d${j}_${g} = d${j} * fma(0.25, f32((h${j} >> ${8 + 4 * g}u) & 15u), 0.125);
//% endfor
//% endmacro
//% macro fetch(j, k)
//% if k % 8 == 0
let p${j}_${k} = point(${low_code(j, k // 8)} | ((h${j} << ${8 - k // 4}u) & 768u));
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
fma(d${j}_${g}, fma(-64.0, ${s}, ${a}), ${y})
//% endmacro
