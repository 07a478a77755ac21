//# IQ3_S: value = d * (1 + 2 * step) * q, four q a code; s holds the signs, a word of q three codes of nine bits and five bits
//# of another, h the four bits that these two lack, and the step.
//% from "include/codebook.wgsl" import codebook, signed, element with context
//% macro nine(j, i)
//% if i < 6
((${word("q", j, i // 3)} ${">> %du" % (9 * (i % 3)) if i % 3 else ""}) & 511u)
//% elif i == 6
((${word("q", j, 0)} >> 27u) | ((h${j} & 15u) << 5u))
//% else
((${word("q", j, 1)} >> 27u) | ((h${j} & 240u) << 1u))
//% endif
//% endmacro
//% macro declare()
${codebook()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let s${j} = ${word("s", j, 0)};
let h${j} = ${bits("h", j)};
let d${j} = ${half("d", j)} * fma(2.0, f32(h${j} >> 8u), 1.0);
//% endmacro
//% macro fetch(j, k)
//% if k % 4 == 0
${signed(j, k, "point(" ~ nine(j, k // 4) ~ ")")}
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
