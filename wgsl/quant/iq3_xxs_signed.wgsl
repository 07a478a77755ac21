//# IQ3_XXS whose signs are looked up with the sizes: value = d * (1 + 2 * step) / 4 * q, four q a code of eight bits and four signs
//# above it; each word of q has two of these twelve bits, and above them a byte of the last two; s holds a superblock's steps.
//% from "include/codebook.wgsl" import codebook, element with context
//% macro signed_code(j, i)
//% if i < 6
${"(%s >> 20u)" % word("q", j, i // 2) if i % 2 else "(%s & 4095u)" % word("q", j, i // 2)}
//% else
(((${word("q", j, i - 6)} >> 12u) & 255u) | ((${word("q", j, 2)} >> ${4 * i - 20}u) & 3840u))
//% endif
//% endmacro
//% macro declare()
${codebook()}
//% endmacro
//% macro open(j)
//% endmacro
//% macro setup(j)
let d${j} = ${half("d", j)} * fma(0.5, f32((${word("s", j, 0)} >> (unit % 8u * 4u)) & 15u), 0.25);
//% endmacro
//% macro fetch(j, k)
//% if k % 4 == 0
let g${j}_${k} = point(${signed_code(j, k // 4)});
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
