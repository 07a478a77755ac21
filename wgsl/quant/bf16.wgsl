//# BF16: the high half of an f32.
//% macro open(j)
//% endmacro
//% macro setup(j)
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
//% if k % 2
bitcast<f32>(${word("q", j, k // 2)} & 0xffff0000u)
//% else
bitcast<f32>(${word("q", j, k // 2)} << 16u)
//% endif
//% endmacro
//% macro fold(j, g, a, s, y)
(${y} + ${a})
//% endmacro
