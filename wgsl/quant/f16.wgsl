//# F16: two halves a word.
//% macro open(j)
//% endmacro
//% macro setup(j)
//% for i in range(16)
let e${j}_${i} = unpack2x16float(${word("q", j, i)});
//% endfor
//% endmacro
//% macro lift(k)
0
//% endmacro
//% macro weight(j, k)
e${j}_${k // 2}.${c[k % 2]}
//% endmacro
//% macro fold(j, g, a, s, y)
(${y} + ${a})
//% endmacro
