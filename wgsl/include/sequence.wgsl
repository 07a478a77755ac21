//# Where the rows of a step stand, and where a state space's page keeps its tokens, KEPT values for each of 16, and
//# behind them how many of them its state is after.
fn position_of(row: u32) -> u32 { return state[dims.rows_at + row * 4u + 1u]; }
fn table_of(row: u32) -> u32 { return state[dims.rows_at + row * 4u + 2u + dims.windowed]; }
fn page_of(table: u32, position: u32) -> u32 { return state[table + position / 16u]; }
//% set counted = STATELESS is not defined
fn token_in(page: u32, position: u32) -> u32 { return page * ${16 * KEPT + (4 if counted else 0)}u + position % 16u * ${KEPT}u; }
//% if counted
fn count_at(page: u32) -> u32 { return page * ${16 * KEPT + 4}u + ${16 * KEPT}u; }
//% endif
//# whether `back` rows before stands the token `back` positions before, of the same sequence
fn follows(row: u32, back: u32) -> bool {
  return row >= back && table_of(row - min(row, back)) == table_of(row)
    && position_of(row - min(row, back)) + back == position_of(row);
}
fn silu(x: f32) -> f32 { return x / (1.0 + exp(-x)); }
