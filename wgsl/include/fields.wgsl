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
//# the same nibble in two's complement, as f32
//% macro signed_nibble(j, k)
f32(extractBits(bitcast<i32>(${word("q", j, (k % 16) // 4)}), ${8 * (k % 4) + 4 * (k // 16)}u, 4u))
//% endmacro
//# element k of a plane of `bits`-bit fields in element order, shifted to bit `to`
//% macro field(plane, j, k, bits, to)
${moved(word(plane, j, k * bits // 32), k * bits % 32, to, (2 ** bits - 1) * 2 ** to)}
//% endmacro
//# element k of a plane of signed bytes, as f32
//% macro signed_byte(plane, j, k)
f32(extractBits(bitcast<i32>(${word(plane, j, k // 4)}), ${8 * (k % 4)}u, 8u))
//% endmacro
//# the same fields left at their place in the word; the topmost is moved, since f32() of a value
//# that may reach 2^31 costs five instructions where that of a smaller one costs one
//% macro field_lift(k, bits)
${0 if k * bits % 32 + bits == 32 else k * bits % 32}
//% endmacro
//% macro in_place_field(plane, j, k, bits)
//% set at = k * bits % 32
${moved(word(plane, j, k * bits // 32), at, at if at + bits < 32 else 0, (2 ** bits - 1) * 2 ** (at if at + bits < 32 else 0))}
//% endmacro
//% macro nibble_lift(k)
${0 if k % 4 == 3 and k >= 16 else 8 * (k % 4) + 4 * (k // 16)}
//% endmacro
//% macro in_place_nibble(j, k)
//% set at = 8 * (k % 4) + 4 * (k // 16)
${moved(word("q", j, (k % 16) // 4), at, at if at < 28 else 0, 15 * 2 ** (at if at < 28 else 0))}
//% endmacro
