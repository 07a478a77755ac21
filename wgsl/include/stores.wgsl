//# Four neighbouring dimensions of q, k or v (in that order of rows) to where attention reads them.
//# `shrink` divides what a q8 page takes by the scale its head was given; 1 otherwise.
//% set late = head_norms is defined and head_norms == "late"
fn store_qkv(v: vec4<f32>, token: u32, row: u32, shrink: f32) {
  let q_rows = dims.heads * dims.head_dim;
  let kv_rows = dims.kv_heads * dims.head_dim;
  let position = state[dims.rows_at + token * 4u + 1u];
  let table = state[dims.rows_at + token * 4u + 2u + dims.windowed];
  if (row < q_rows) {
    put_q_out(token * dims.y_stride + row / 4u, turned(v, position, row % dims.head_dim)${" * norms[row % dims.head_dim / 4u]" if late} * dims.scale);
  } else if (row < q_rows + kv_rows) {
    let r = row - q_rows;
    let k = turned(v, position, r % dims.head_dim)${" * norms[(dims.head_dim + r % dims.head_dim) / 4u]" if late};
    put_keys(key_at(page_of(table, position), r / dims.head_dim, position, r % dims.head_dim), ${{"f32": "k", "f16": "halves_of(k)", "q8": "bytes_of(k * shrink)"}[key_format]});
  } else if (row < q_rows + 2u * kv_rows) {  // tall tiles may end behind the last row
    let r = row - q_rows - kv_rows;
    put_values(value_at(page_of(table, position), r / dims.head_dim, position, r % dims.head_dim), ${{"f32": "v", "f16": "halves_of(v)", "q8": "bytes_of(v * shrink)"}[value_format]});
  }
}
