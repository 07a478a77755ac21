"""Many threads, one model: their requests are computed together: `python docs/examples/threads.py [MODEL]`."""

import sys
from concurrent.futures import ThreadPoolExecutor

import llamay

ANIMALS = ("cat", "dog", "owl", "eel", "bee", "fox", "hen", "yak")

with llamay.Llama(sys.argv[1] if len(sys.argv) > 1 else "") as model, ThreadPoolExecutor(len(ANIMALS)) as pool:

    def ask(animal: str) -> llamay.Completion:
        return model.complete(f"The {animal} said:", max_tokens=20, seed=1, client=animal)

    for animal, answer in zip(ANIMALS, pool.map(ask, ANIMALS), strict=True):
        times = answer.timings
        print(f"{animal}: {answer.text!r} (waited {times.queue_seconds:.3f} s, {times.generated_rate:.1f} tokens a second)")

    alone = model.complete("The owl said:", max_tokens=20, seed=1)
    print("company changed nothing:", alone.tokens == ask("owl").tokens)
