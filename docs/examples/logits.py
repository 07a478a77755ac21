"""How surprised a model is by each token of a text: `python docs/examples/logits.py [MODEL]`."""

import sys

import numpy as np

import llamay

with llamay.Llama(sys.argv[1] if len(sys.argv) > 1 else "") as model:
    context = model.context(text="The ferry leaves at seven, whatever the weather does.")
    logits = context.logits().astype(np.float64)  # [tokens, vocabulary]; row i is for token i + 1
    chances = logits - logits.max(axis=1, keepdims=True)
    chances -= np.log(np.exp(chances).sum(axis=1, keepdims=True))
    for row, token in zip(chances, context.tokens[1:], strict=False):
        print(f"{model.tokenizer.text([token]):>12}  {-row[token]:6.2f}")
