//# The numbers sampling is defined in; llamay/sample/fixed.py is this file in NumPy, bit for bit.
//# A wide integer is vec2<u32>(low, high).  No float expression here has more than one operation:
//# `kept` hides each result behind a word that is zero, so that no compiler can fuse two of them.
const LIMIT = 1e30;
const EXCLUDED = -3e38;
const FARTHEST = 0xffffffffu;
var<private> zero: u32;

fn kept(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ zero); }

fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn wide_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn wide_less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn wide_product(a: u32, b: u32) -> vec2<u32> {
  let ll = (a & 0xffffu) * (b & 0xffffu);
  let lh = (a & 0xffffu) * (b >> 16u);
  let hl = (a >> 16u) * (b & 0xffffu);
  let middle = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
  return vec2<u32>((ll & 0xffffu) | (middle << 16u), (a >> 16u) * (b >> 16u) + (lh >> 16u) + (hl >> 16u) + (middle >> 16u));
}
//# a * b / 2^32, cut; y is 1 where something was cut off
fn wide_scaled(a: vec2<u32>, b: u32) -> vec3<u32> {
  let low = wide_product(a.x, b);
  let high = wide_add(wide_product(a.y, b), vec2<u32>(low.y, 0u));
  return vec3<u32>(high, select(0u, 1u, low.x != 0u));
}

//# a logit's bits as the chain sees it: NaN and what lies below -LIMIT excluded, the rest at most LIMIT
fn cleaned(bits: u32) -> f32 {
  let size = bits & 0x7fffffffu;
  if (size < 0x00800000u) { return 0.0; }
  if (size <= 0x7149f2cau) { return bitcast<f32>(bits); }
  return select(EXCLUDED, LIMIT, size == bits && size <= 0x7f800000u);
}
fn settled(z: f32) -> f32 {
  let bits = bitcast<u32>(z);
  return select(bitcast<f32>(bits), 0.0, (bits & 0x7fffffffu) < 0x00800000u);
}
fn order_key(z: f32) -> u32 {
  let bits = bitcast<u32>(z);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
fn float_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u)); }

fn distance_of(key: u32, top: f32, rate: f32) -> u32 {
  let d = kept(min(kept(top - float_of(key)), LIMIT) * rate);
  if (d < 64.0) { return u32(d * 67108864.0); }
  return FARTHEST;
}
fn high_product(a: u32, b: u32) -> u32 { return wide_product(a, b).y; }
//# exp(-distance) * 2^43, cut
fn mass_of(distance: u32) -> vec2<u32> {
  let halved = high_product(distance, 3098164009u);
  let whole = halved >> 25u;
  let f = halved << 7u;
  var power = 2737501u - high_product(f, 234126u);
  power = 20571132u - high_product(f, power);
  power = 119165493u - high_product(f, power);
  power = 515877902u - high_product(f, power);
  power = 1488521986u - high_product(f, power);
  power = 0x80000000u - high_product(f, power);
  if (whole > 43u) { return vec2<u32>(0u, 0u); }
  if (whole > 12u) { return vec2<u32>(power >> (whole - 12u), 0u); }
  return vec2<u32>(power << (12u - whole), select(power >> (20u + whole), 0u, whole == 12u));
}
//# mass * distance / 2^27, cut
fn moment_of(mass: vec2<u32>, distance: u32) -> vec2<u32> {
  let low = wide_product(mass.x, distance);
  let high = wide_product(mass.y, distance);
  return wide_add(vec2<u32>((low.x >> 27u) | (low.y << 5u), low.y >> 27u), vec2<u32>(high.x << 5u, (high.y << 5u) | (high.x >> 27u)));
}
//# moment * 2^27 / mass, cut: the mean distance (below 64, so below 2^32)
fn mean_distance(mass: vec2<u32>, moment: vec2<u32>) -> u32 {
  var rest = vec2<u32>((moment.x >> 5u) | (moment.y << 27u), moment.y >> 5u);
  var mean = 0u;
  for (var i = 0u; i < 32u; i++) {
    let next = select(0u, (moment.x >> (4u - min(i, 4u))) & 1u, i < 5u);
    rest = vec2<u32>((rest.x << 1u) | next, (rest.y << 1u) | (rest.x >> 31u));
    mean = mean << 1u;
    if (!wide_less(rest, mass)) {
      rest = wide_subtract(rest, mass);
      mean |= 1u;
    }
  }
  return mean;
}
//# how far a token's surprise is from the expected one, the likelier side first
fn surprise(distance: u32, mean: u32) -> u32 {
  let off = select(mean - distance, distance - mean, distance > mean);
  return (min(off, 0x7fffffffu) << 1u) | select(0u, 1u, distance > mean);
}
