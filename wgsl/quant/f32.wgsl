//# F32: the value itself.
//% macro open(j)
//% endmacro
//% macro setup(j)
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
bitcast<f32>(${word("q", j, k)})
//% endmacro
//% macro fold(j, g, a, s, y)
(${y} + ${a})
//% endmacro
