//# Bit fields of packed quants, as u32 expressions.
//% macro moved(value, from, to, mask)
//% if from > to
((${value} >> ${from - to}u) & ${mask}u)
//% elif from < to
((${value} << ${to - from}u) & ${mask}u)
//% else
(${value} & ${mask}u)
//% endif
//% endmacro
//# element k of a nibble plane: byte b of the 16 holds element b low and b + 16 high
//% macro nibble(j, k)
//% set shift = 8 * (k % 4) + 4 * (k // 16)
//% if shift == 28
(${word("q", j, (k % 16) // 4)} >> 28u)
//% else
${moved(word("q", j, (k % 16) // 4), shift, 0, 15)}
//% endif
//% endmacro
//# element k of a plane of `bits`-bit fields in element order, shifted to bit `to`
//% macro field(plane, j, k, bits, to)
${moved(word(plane, j, k * bits // 32), k * bits % 32, to, (2 ** bits - 1) * 2 ** to)}
//% endmacro
//# element k of a plane of signed bytes, as f32
//% macro signed_byte(plane, j, k)
f32(extractBits(bitcast<i32>(${word(plane, j, k // 4)}), ${8 * (k % 4)}u, 8u))
//% endmacro
