//# Where a token's keys and values lie.  A page holds 16 tokens of every kv head:
//# keys [page][kv head][dim / 4][16] vec4 (a lane is a token), values [page][kv head][16][dim / 4] vec4.
fn page_of(table: u32, position: u32) -> u32 { return state[table + position / 16u]; }
fn key_at(page: u32, head: u32, position: u32, dimension: u32) -> u32 {
  return ((page * dims.kv_heads + head) * (dims.head_dim / 4u) + dimension / 4u) * 16u + position % 16u;
}
fn value_at(page: u32, head: u32, position: u32, dimension: u32) -> u32 {
  return ((page * dims.kv_heads + head) * 16u + position % 16u) * (dims.head_dim / 4u) + dimension / 4u;
}
