"""Answers and streams: `python docs/examples/answer.py [MODEL]`."""

import sys

import llamay

with llamay.Llama(sys.argv[1] if len(sys.argv) > 1 else "") as model:
    print(model.describe())

    reply = model.chat([{"role": "user", "content": "In one sentence: what is the sea?"}], max_tokens=60)
    print(reply.text, f"({reply.reason}, {reply.timings.generated_rate:.1f} tokens a second)")

    for piece in model.complete("Once upon a time", max_tokens=60, seed=7, stream=True):
        print(piece.text, end="", flush=True)
    print()

    several = model.complete("A good name for a cat is", n=3, max_tokens=8, seed=1)  # one prefill, three forks of it
    for choice in several.choices:
        print(f"seed {choice.seed}: {choice.text!r}")

    best = model.complete("The capital of France is", best_of=4, max_tokens=8, seed=1)
    print(f"the likeliest of four: {best.text!r} (mean log-probability {best.choices[0].logprob:.2f})")
