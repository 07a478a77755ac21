//# Sixteen values by a code of four bits, where a subgroup has eight lanes: each lane holds two, and a code names the lane
//# that is asked. A value is at most eight bits long, so that half a word has it: the code's highest bit chooses the lower half.
//# Cheaper on lavapipe than a polynomial of the code, and much cheaper than to ask twice and choose then.
//% macro hold(values)
  let held = bitcast<u32>(array<f32, 8>(${values[:8] | join(", ")})[lane]) | (bitcast<u32>(array<f32, 8>(${values[8:] | join(", ")})[lane]) >> 16u);
//% endmacro
//% macro held(j, k)
//% set at = 8 * (k % 4) + 4 * (k // 16)
//% set q = word("q", j, (k % 16) // 4)
//% set lane = (q ~ " & 7u") if at == 0 else ("(" ~ q ~ " >> " ~ at ~ "u) & 7u")
//% set lower = ("(" ~ q ~ " << 1u) & 16u") if at == 0 else ("(" ~ q ~ " >> " ~ (at - 1) ~ "u) & 16u")
bitcast<f32>((subgroupShuffle(held, ${lane}) << (${lower})) & 0xffff0000u)
//% endmacro
