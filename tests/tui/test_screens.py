"""What every screen says at three sizes, line by line.  WRITE_SCREENS=1 stores what is shown now; look at it before it is kept."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual._compositor import LayoutUpdate

from llamay.tui.app import LEAST, NAMES
from llamay.tui.pagemap import PageMap
from llamay.tui.prompt import Prompt
from llamay.tui.rows import Rows

SCREENS = Path(__file__).parent / "screens"
SIZES = ((120, 40), (80, 24), (50, 14))
LIVE = {"chat": Prompt, "pages": PageMap}  # elsewhere a table


Say = Callable[[str, list[str]], bool]


def every(started: Any, source: Any, size: tuple[int, int], text: Any, wait: Any, so: Say, then: Any = None) -> None:
    """Shows every screen, one after the other, until something is so of what it says."""

    async def test() -> None:
        async with started(source, NAMES[-1], size) as (app, pilot):
            if then is not None:
                source.hear(then)
                await wait(pilot, lambda: app.snapshot is then)
            for pane in NAMES:
                app.action_show(pane)
                await pilot.pause()
                await pilot.pause(0.5 if os.environ.get("WRITE_SCREENS") else 0)
                with contextlib.suppress(AssertionError):
                    await wait(pilot, lambda pane=pane: so(pane, text(app)), 40.0)
                assert app.pane.query_one(LIVE.get(pane, Rows)).is_attached, "a live widget, and no traceback"
                found = text(app)
                assert so(pane, found), "\n".join([pane, *found])
                assert len(found) == size[1] and max(map(len, found)) <= size[0]

    asyncio.run(test())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_screen_says_what_it_said(started: Any, scripted: Any, moments: Any, text: Any, wait: Any, size: tuple[int, int]) -> None:
    def so(pane: str, found: list[str]) -> bool:
        kept = SCREENS / f"{pane}-{size[0]}x{size[1]}.txt"
        if os.environ.get("WRITE_SCREENS"):
            kept.write_text("\n".join(found) + "\n", encoding="utf-8")
        return found == kept.read_text(encoding="utf-8").splitlines()

    every(started, scripted(moments()), size, text, wait, so, moments(0.25))


def test_an_empty_screen_names_the_next_key(started: Any, scripted: Any, text: Any, wait: Any) -> None:
    from llamay.tui.moment import Snapshot

    says = {
        "chat": "press enter", "batch": "Press 1", "pages": "Press 1", "forks": "Press 1", "requests": "curl ",
        "models": "p pulls one", "bench": "b measures", "log": "v checks",
    }  # fmt: skip
    every(started, scripted(Snapshot(1e9), models=()), (100, 30), text, wait, lambda pane, found: says[pane] in "\n".join(found))


def test_a_small_terminal_gets_a_sentence(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "batch", (49, 13)) as (app, pilot):
            await wait(pilot, lambda: app.screen.has_class("small") and "lines" in "\n".join(text(app)))
            shown = " ".join("\n".join(text(app)).split())
            assert "49 columns and 13 lines" in shown and f"needs {LEAST[0]} and {LEAST[1]}" in shown
            await pilot.resize_terminal(80, 24)
            await wait(pilot, lambda: not app.screen.has_class("small") and any("decode" in line for line in text(app)))

    asyncio.run(test())


def test_help_may_be_asked_for_in_a_terminal_that_is_too_small(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "batch", (2, 1)) as (app, pilot):
            await wait(pilot, lambda: app.screen.has_class("small"))
            await pilot.press("question_mark")
            await wait(pilot, lambda: len(app.screen_stack) == 2)
            await pilot.resize_terminal(80, 24)
            await pilot.press("escape")
            await wait(pilot, lambda: len(app.screen_stack) == 1)

    asyncio.run(test())


def test_a_storm_of_sizes_leaves_the_screen_as_it_was(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "pages", (80, 24)) as (app, pilot):
            await wait(pilot, lambda: "Quit" in text(app)[-1] and all(part in "\n".join(text(app)) for part in ("3333", "page 0:", "pages used")))
            before = text(app)
            for columns, lines in [(120, 40), (50, 14), (30, 5), (200, 60), (51, 15)] * 2:
                await pilot.resize_terminal(columns, lines)
            await pilot.resize_terminal(80, 24)
            await wait(pilot, lambda: text(app) == before)

    asyncio.run(test())


def test_a_terminal_that_was_smaller_in_between_is_painted_anew(started: Any, scripted: Any, moments: Any, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick change and back again is heard of as the same size; what did not fit in between is gone from the terminal."""

    async def test() -> None:
        async with started(scripted(moments()), "pages", (80, 24)) as (app, pilot):
            painted: list[Any] = []
            monkeypatch.setattr(app, "_display", lambda screen, update: painted.append(update))
            await pilot.resize_terminal(80, 24)
            await wait(pilot, lambda: any(isinstance(update, LayoutUpdate) for update in painted))

    asyncio.run(test())
