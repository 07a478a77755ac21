//# Statements of the whole route: inside an entry point, with slot and lane.
//% macro locate(bins, each, wanted)
//# the place in histogram `bins` of `each` bins a lane; `wanted` may use total()
{
  let highest = (slot + 1u) * ${each * 256}u - 1u;
  var own = vec2<u32>(0u, 0u);
//% for i in range(each)
  own = wide_add(own, ${bins}[highest - lane * ${each}u - ${i}u]);
//% endfor
  lay_out(own, lane);
  if (lane == 0u) {
    let found = search(wide_subtract(${wanted}, vec2<u32>(1u, 0u)));
    var rest = found.rest;
    var bin = highest - found.lane * ${each}u;
    for (var i = 1u; i < ${each}u; i++) {
      if (wide_less(rest, ${bins}[bin])) { break; }
      rest = wide_subtract(rest, ${bins}[bin]);
      bin -= 1u;
    }
    place = Place(bin - slot * ${each * 256}u, wide_add(rest, vec2<u32>(1u, 0u)), ${bins}[bin]);
  }
}
let place_found = workgroupUniformLoad(&place);
//% endmacro
//# `mass` to the atomic pair (lows[low], highs[high])
//% macro add(lows, low, highs, high, mass)
{
  let old = atomicAdd(&${lows}[${low}], ${mass}.x);
  let carried = ${mass}.y + select(0u, 1u, old > 0xffffffffu - ${mass}.x);
  if (carried != 0u) { atomicAdd(&${highs}[${high}], carried); }
}
//% endmacro
