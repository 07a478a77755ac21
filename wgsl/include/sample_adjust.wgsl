//# A token's logit after mask, bias and penalties, as an ordered key.  Bound only where some slot needs it.
//% if penalties
@group(0) @binding(5) var<storage, read> counts: array<u32>;   // [slot, vocabulary]
//% endif
//% if bias
@group(0) @binding(6) var<storage, read> bias: array<f32>;     // [slot, vocabulary]
//% endif
//% if masked
@group(0) @binding(7) var<storage, read> allowed: array<u32>;  // [slot, vocabulary / 32, rounded up]
//% endif

fn adjusted_key(slot: u32, token: u32) -> u32 {
  let at = slot * VOCABULARY + token;
  var z = cleaned(logits[at]);
//% if bias
  if ((terms[slot].flags & BIAS) != 0u && z > EXCLUDED) {
    let b = bias[at];
    z = select(EXCLUDED, settled(kept(z + b)), b > -LIMIT);
  }
//% endif
//% if masked
  if (((allowed[slot * ${(vocabulary + 31) // 32}u + token / 32u] >> (token & 31u)) & 1u) == 0u) { z = EXCLUDED; }
//% endif
//% if penalties
  if ((terms[slot].flags & PENALTIES) != 0u && z > EXCLUDED) {
    let seen = counts[at];
    if (seen != 0u) {
      let turned = settled(kept(z * select(terms[slot].unrepeat, terms[slot].repeat, z <= 0.0)));
      let fine = kept(kept(f32(seen) * terms[slot].frequency) + terms[slot].presence);
      z = settled(kept(turned - fine));
    }
  }
//% endif
  return order_key(z);
}
