//# TQ1_0: value = d * (q - 1), q the digits of fractions in base 3, ten in 16 bits: two in q and one in h.
//# The last two of a unit's 32 have two bits each in r, which is the superblock's.
//% macro open(j)
let d${j} = ${half("d", j)};
//% endmacro
//% macro setup(j)
let t${j}_0 = ${word("q", j, 0)} & 0xffffu;
let t${j}_1 = ${word("q", j, 0)} >> 16u;
let t${j}_2 = ${bits("h", j)};
let t${j}_3 = ${word("r", j, 0)} >> (unit % 8u * 4u);
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
//% if k >= 30
f32((t${j}_3 >> ${2 * (k - 30)}u) & 3u)
//% else
f32((((t${j}_${k // 10} * ${3 ** (k % 10)}u) & 0xffffu) * 3u) >> 16u)
//% endif
//% endmacro
//% macro fold(j, g, a, s, y)
fma(d${j}, ${a} - ${s}, ${y})
//% endmacro
