//# Points of a codebook by their codes, signed: elements are bytes, 64 larger than they are so that none is negative.
//% macro codebook()
@group(0) @binding(15) var<uniform> points: array<vec4<u32>, ${points // 4}>;
fn point(code: u32) -> u32 { return points[code >> 2u][code & 3u]; }
//% endmacro
//# seven signs of each eight and the last, which makes the number of set bits even
//% macro eighth_signs()
fn signs_of(known: u32) -> u32 {
  let seven = known & 0x0fffffffu;
  let pairs = seven ^ (seven >> 16u);
  let quads = pairs ^ (pairs >> 8u);
  return seven | ((quads ^ (quads >> 4u)) << 28u);
}
//% endmacro
//# the code of point `i` of a unit: a byte of q, and what stands above it
//% macro low_code(j, i)
//% if i % 4 == 3
(${word("q", j, i // 4)} >> 24u)
//% elif i % 4
((${word("q", j, i // 4)} >> ${8 * (i % 4)}u) & 255u)
//% else
(${word("q", j, i // 4)} & 255u)
//% endif
//% endmacro
//# four elements from k on, with the signs that bits of s tell: the seven bits of a byte p are turned into those of 128 - p
//% macro signed(j, k, raised)
//% set at = 4 * (k % 8 // 4) + k // 8
let m${j}_${k} = (s${j} ${">> %du" % at if at else ""}) & 0x01010101u;
let g${j}_${k} = (${raised} ^ (0x80808080u - m${j}_${k})) + m${j}_${k};
//% endmacro
//# four of the eight elements of IQ2 that a word of nibbles tells
//% macro four_of_eight(j, k)
//% if k % 8
(((p${j}_${k - 4} >> 2u) & 0x33333333u) | 0x48484848u)
//% else
((p${j}_${k} & 0x33333333u) | 0x48484848u)
//% endif
//% endmacro
//% macro element(j, k)
f32(g${j}_${k // 4 * 4} & ${127 * 2 ** (8 * (k % 4))}u)
//% endmacro
