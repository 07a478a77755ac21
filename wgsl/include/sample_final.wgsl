//# The mass with which a token that all filters left is drawn.
fn final_top(slot: u32) -> f32 { return float_of(word_of(slot, select(TOP, TOP_LEFT, (flags & (TYPICAL | TOP_P)) != 0u))); }
fn least_key(slot: u32, most: f32) -> u32 {
  if ((flags & MIN_P) == 0u) { return 0u; }
  return order_key(settled(kept(most + terms[slot].floor)));
}
fn is_final(slot: u32, token: u32, least: u32) -> bool {
  if (token >= VOCABULARY) { return false; }
  let key = keys[slot * VOCABULARY + token];
  return key >= least && is_left(key, token);
}
fn final_mass(slot: u32, token: u32, most: f32) -> vec2<u32> {
  return mass_of(distance_of(keys[slot * VOCABULARY + token], most, terms[slot].rate));
}
