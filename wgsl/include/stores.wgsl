//# Four neighbouring dimensions of q, k or v (in that order of rows) to where attention reads them.
fn store_qkv(v: vec4<f32>, token: u32, row: u32) {
  let q_rows = dims.heads * dims.head_dim;
  let kv_rows = dims.kv_heads * dims.head_dim;
  let position = state[dims.rows_at + token * 4u + 1u];
  let table = state[dims.rows_at + token * 4u + 2u + dims.windowed];
  if (row < q_rows) {
    q_out[token * dims.y_stride + row / 4u] = turned(v, position, row % dims.head_dim) * dims.scale;
  } else if (row < q_rows + kv_rows) {
    let r = row - q_rows;
    keys[key_at(page_of(table, position), r / dims.head_dim, position, r % dims.head_dim)] = turned(v, position, r % dims.head_dim);
  } else {
    let r = row - q_rows - kv_rows;
    values[value_at(page_of(table, position), r / dims.head_dim, position, r % dims.head_dim)] = v;
  }
}
