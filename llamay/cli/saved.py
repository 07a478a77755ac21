"""A saved context as the beginning of an answer."""

from pathlib import Path

from llamay.cli.terminal import note
from llamay.kv import snapshots
from llamay.serve.contexts import turns
from llamay.serve.contexts.pages import Pages, common
from llamay.serve.contexts.shelf import STATE
from llamay.serve.engine import Engine
from llamay.serve.loading.language import Message, Prompt
from llamay.serve.loading.load import Loaded
from llamay.serve.scheduling.scheduler import Scheduler


def reopen(
    engine: Engine, loaded: Loaded, folder: Path, name: str, asked: str, *, raw: bool, recompute: bool
) -> tuple[Prompt, int]:
    """The prompt that a text is behind a saved context, and the context among the engine's; a note says how it came about.

    ContextMismatch where its pages are of no use here and it is not to be computed again.
    """
    place, pages, weights = snapshots.Folder(folder), Pages(), loaded.digest()
    saved = place.find(name).manifest

    def restore(scheduler: Scheduler) -> snapshots.Restored:
        origin = snapshots.origin_of(scheduler.executor, scheduler.cache, loaded.name, weights)
        return pages.restore(scheduler, place, saved, origin, tokens=None, recompute=recompute)

    found = engine.call(restore)
    note(f"{saved.name!a}: {found.note}")
    prompt = _behind(loaded, found, asked, raw=raw)
    same = common(found.context.tokens, prompt.tokens)
    engine.call(lambda scheduler: pages.rewind(scheduler.admission, same))
    return prompt, found.context.id


def _behind(loaded: Loaded, found: snapshots.Restored, asked: str, *, raw: bool) -> Prompt:
    """A raw text behind the tokens, or a question as the chat template puts it there; without one what they hold is answered."""
    if raw:
        return turns.after_text(loaded.language, found.tokens, asked)
    question: list[Message] = [{"role": "user", "content": asked}] if asked else []
    unanswered = found.state.get(STATE)  # which the template may join with what is new
    if isinstance(unanswered, list):
        return loaded.language.chat([*unanswered, *question])
    return turns.after_answer(loaded.language, found.tokens, question)
