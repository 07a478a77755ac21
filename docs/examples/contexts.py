"""One long text, many questions: `python docs/examples/contexts.py [MODEL]`."""

import sys

import llamay

STORY = (
    "The ferry leaves at seven, whatever the weather does. Anna counted the crates twice: twelve of apples, three of "
    "honey, and one, tied with string, that nobody had asked for.\n"
)
QUESTIONS = ("How many crates hold honey?", "When does the ferry leave?", "Who counted the crates?")

with llamay.Llama(sys.argv[1] if len(sys.argv) > 1 else "") as model:
    story = model.context(text=STORY)  # computed once
    for question, fork in zip(QUESTIONS, story.fork(len(QUESTIONS)), strict=True):  # no page is copied
        answer = fork.append(text=f"Question: {question}\nAnswer:").generate(max_tokens=16, temperature=0, stop="\n")
        print(f"{question} {answer.text.strip()}")

    length = len(story)
    story.generate(max_tokens=16, temperature=0)  # the context goes on with the answer ...
    story.rewind(length)  # ... and back

    name = story.snapshot("ferry", tags=["example"])  # kept on disk; `llamay context list` shows it
    again = model.restore(name)
    print(f"{name!r} came back with {len(again)} tokens: {again.tokens == story.tokens}")
