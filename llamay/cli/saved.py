"""A saved context as the beginning of an answer."""

from collections.abc import Sequence
from pathlib import Path

from llamay.cli.terminal import note
from llamay.kv import snapshots
from llamay.serve.contexts import turns
from llamay.serve.contexts.pages import Pages
from llamay.serve.engine import Engine
from llamay.serve.loading.language import Message, Prompt
from llamay.serve.loading.load import Loaded
from llamay.serve.scheduling.scheduler import Scheduler


def reopen(engine: Engine, loaded: Loaded, folder: Path, name: str, *, recompute: bool) -> snapshots.Restored:
    """The saved context among the engine's, after a note on how it came about; ContextMismatch where it is of no use here."""
    place, weights = snapshots.Folder(folder), loaded.digest()
    saved = place.find(name).manifest

    def restore(scheduler: Scheduler) -> snapshots.Restored:
        origin = snapshots.origin_of(scheduler.executor, scheduler.cache, loaded.name, weights)
        return Pages().restore(scheduler, place, saved, origin, tokens=None, recompute=recompute)

    found = engine.call(restore)
    note(f"{saved.name!a}: {found.note}")
    return found


def prompt(loaded: Loaded, held: Sequence[int], asked: str, *, raw: bool) -> Prompt:
    """`held` and behind them a raw text, or a question as the chat template puts it there; without one the last answer goes on."""
    if raw:
        return turns.after_text(loaded.language, held, asked)
    question: list[Message] = [{"role": "user", "content": asked}] if asked else []
    return turns.after_answer(loaded.language, held, question)
