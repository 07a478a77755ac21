//# The mass with which a token that all filters left is drawn.
fn final_top(slot: u32) -> f32 { return float_of(word_of(slot, select(TOP, TOP_LEFT, (flags & (TYPICAL | TOP_P)) != 0u))); }
fn least_key(slot: u32, most: f32) -> u32 {
  if ((flags & MIN_P) == 0u) { return 0u; }
  return order_key(settled(kept(most + terms[slot].floor)));
}
fn final_mass(slot: u32, token: u32, most: f32, least: u32) -> vec2<u32> {
  if (token >= VOCABULARY) { return vec2<u32>(0u, 0u); }
  let key = keys[slot * VOCABULARY + token];
  if (key < least || !is_left(key, token)) { return vec2<u32>(0u, 0u); }
  return mass_of(distance_of(key, most, terms[slot].rate));
}
