//# IQ1_M: value = d * (1 + 2 * step) * (q - 1 + shift), eight q of 0, 1, 2 a code, each with its shift of an eighth up
//# or down, a step for 16; h holds a nibble a code, its high bits and the shift, and s and the high half of dt the
//# superblock's steps.
//% from "include/codebook.wgsl" import codebook, low_code with context
//% macro declare()
${codebook()}
//% endmacro
//% macro open(j)
let d${j} = unpack2x16float(${word("dt", j, 0)}).x;
//% endmacro
//% macro setup(j)
let h${j} = ${bits("h", j)};
let t${j} = ((${word("s", j, 0)} >> (unit % 8u * 4u)) & 15u) | (((${word("dt", j, 0)} >> (16u + unit % 8u * 2u)) & 3u) << 4u);
let d${j}_0 = d${j} * fma(2.0, f32(t${j} & 7u), 1.0);
let d${j}_1 = d${j} * fma(2.0, f32(t${j} >> 3u), 1.0);
//% for i in range(4)
let b${j}_${i} = fma(-0.25, f32((h${j} >> ${4 * i + 3}u) & 1u), -0.875);
//% endfor
//% endmacro
//% macro fetch(j, k)
//% if k % 8 == 0
let p${j}_${k} = point(${low_code(j, k // 8)} | ((h${j} ${"<< %du" % (8 - k // 2) if k < 24 else ">> 4u"}) & 1792u));
//% endif
//% endmacro
//% macro lift(k)
${4 * (k % 8)}
//% endmacro
//% macro weight(j, k)
f32(p${j}_${k // 8 * 8} & ${3 * 16 ** (k % 8)}u)
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}_${g // 2}, fma(b${j}_${g}, ${s}, ${a}), ${y})
//% endmacro
