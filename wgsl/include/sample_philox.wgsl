//# The draw: 64 bits of (seed, position) as philox() in llamay/sample/fixed.py makes them, scaled to a total.
fn random_bits(seed: vec2<u32>, position: u32) -> vec2<u32> {
  var word = vec4<u32>(position, 0u, 0u, 0u);
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let p = wide_product(0xd2511f53u, word.x);
    let q = wide_product(0xcd9e8d57u, word.z);
    word = vec4<u32>(q.y ^ word.y ^ key.x, q.x, p.y ^ word.w ^ key.y, p.x);
    key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return word.xy;
}
//# a * b / 2^64, cut
fn wide_fraction(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let carried = wide_add(wide_product(a.x, b.y), vec2<u32>(wide_product(a.x, b.x).y, 0u));
  let middle = wide_add(wide_product(a.y, b.x), vec2<u32>(carried.x, 0u));
  return wide_add(wide_add(wide_product(a.y, b.y), vec2<u32>(carried.y, 0u)), vec2<u32>(middle.y, 0u));
}
