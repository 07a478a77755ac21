//# Where each of the K - 1 tokens before a row stands: beside it in the step, its inputs from `first` of its row on, or in a page.
//% macro before(first)
//% for back in range(1, K)
  let beside${back} = follows(row, ${back}u);
  let seen${back} = position >= ${back}u;
  let raw${back} = (row - min(row, ${back}u)) * ${STRIDE}u${" + %du" % first if first};
  let token${back} = token_in(page_of(table, position - min(position, ${back}u)), position - min(position, ${back}u));
//% endfor
//% endmacro
