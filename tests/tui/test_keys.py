"""Keys, by the state they are pressed in."""

import asyncio
from typing import Any

from textual.widgets import Input

from llamay.tui.app import NAMES, Terminal
from llamay.tui.asking import Ask, Confirm, Help
from llamay.tui.exchange import Exchange


def go(test: Any) -> None:
    asyncio.run(test)


def test_digits_switch_screens_unless_a_field_has_the_focus(started: Any, scripted: Any, moments: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments())) as (app, pilot):
            await pilot.press("3")
            assert app.pane.TITLE == "chat" and app.query_one("#prompt").text == "3", "typed into the prompt"
            await pilot.press("backspace", "escape")
            for number, name in enumerate(NAMES, 1):
                await pilot.press(str(number))
                assert app.pane.TITLE == name
                assert app.focused is not None or name == "chat", f"{name} has the keys"
                await pilot.press("escape")

    go(test())


def test_space_pauses_and_says_so(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "batch") as (app, pilot):
            await pilot.press("space")
            await wait(pilot, lambda: app.paused and "PAUSED" in text(app)[0])
            source.hear(moments(1.0, running=False))
            await wait(pilot, lambda: app._newest is not None and not app._newest.models[0].requests)
            assert any(" decode" in line for line in text(app)), "what was there stays"
            await pilot.press("space")
            await wait(pilot, lambda: "PAUSED" not in text(app)[0] and any("Idle" in line for line in text(app)))

    go(test())


def test_help_is_made_of_the_bindings(started: Any, scripted: Any, moments: Any, text: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "forks", (100, 50)) as (app, pilot):
            await pilot.press("question_mark")
            assert isinstance(app.screen, Help)
            for words in ("Fork: Asks how many", "Diff", "Pause", "Quit"):
                await wait(pilot, lambda words=words: words in "\n".join(text(app)))
            await pilot.press("escape")
            assert not isinstance(app.screen, Help)

    go(test())


def test_a_question_is_answered_forked_asked_again_and_edited(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source) as (app, pilot):
            chat = app.pane
            await pilot.press(*"hello", "enter")
            await wait(pilot, lambda: chat.conversation.waiting == 0 and len(chat.conversation.turns) == 1)
            for words in ("> hello", "The sea is wide.", "16 of 20 cached", "ttft 210ms", "40.0 tok/s"):
                await wait(pilot, lambda words=words: any(words in line for line in text(app)))
            assert source.asked[0].before == ""
            await pilot.press("escape")
            assert isinstance(app.focused, Exchange)
            await pilot.press("f")
            await wait(pilot, lambda: chat.conversation.head == "ctx_fork0")
            await pilot.press(*"more", "enter")
            await wait(pilot, lambda: len(chat.conversation.turns) == 2 and not chat.conversation.waiting)
            assert source.asked[-1].before == "ctx_fork0" and source.asked[-1].parent == 1
            await pilot.press("escape", "r")
            await wait(pilot, lambda: len(chat.conversation.turns) == 3 and not chat.conversation.waiting)
            assert (source.asked[-1].text, source.asked[-1].before) == ("more", "ctx_fork0")
            await pilot.press("escape", "e")
            assert app.query_one("#prompt").text == "more"
            await pilot.press("x", "enter")
            await wait(pilot, lambda: len(chat.conversation.turns) == 4 and not chat.conversation.waiting)
            assert (source.asked[-1].text, source.asked[-1].before) == ("morex", "ctx_fork0")

    go(test())


def test_an_answer_is_stopped_and_keeps_what_came(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        source.hold.clear()
        async with started(source) as (app, pilot):
            await pilot.press(*"hello", "enter")
            await wait(pilot, lambda: any("is wide" in line for line in text(app)))
            await pilot.press("escape", "x")
            await wait(pilot, lambda: app.pane.conversation.waiting == 0)
            await wait(pilot, lambda: all(any(part in line for line in text(app)) for part in ("stopped", "is wide")))

    go(test())


def test_a_request_is_found_from_its_page_and_cancelled(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "pages") as (app, pilot):
            await pilot.press(*["right"] * 8)
            await wait(pilot, lambda: any("request 7" in line and "tokens 0 to 15" in line for line in text(app)))
            await pilot.press("enter")
            assert app.pane.TITLE == "requests" and app.pane.rows.cursor_key == "7"
            await pilot.press("k")
            assert isinstance(app.screen, Confirm)
            await pilot.press("y")
            await wait(pilot, lambda: ("cancel", 7) in source.asked)

    go(test())


def test_requests_are_filtered_and_sorted(started: Any, scripted: Any, moments: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "requests") as (app, pilot):
            keys = lambda: [row.key for row in app.pane.rows.table_rows]  # noqa: E731
            assert keys() == ["9", "8", "7", "5", "4", "3"]
            await pilot.press("slash")
            assert isinstance(app.focused, Input)
            await pilot.press(*"state:failed", "enter")
            assert keys() == ["4"]
            await pilot.press("escape")
            assert len(keys()) == 6
            await pilot.press("v")
            assert keys() == ["3", "4", "5", "7", "8", "9"]

    go(test())


def test_two_branches_are_compared(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "forks") as (app, pilot):
            await pilot.press("equals_sign", "down", "equals_sign")
            await wait(pilot, lambda: any("the dog ran" in line for line in text(app)))
            assert source.asked == [("diff", "ctx_aaaaaa11", "ctx_bbbbbb22")]
            await pilot.press("f")
            assert isinstance(app.screen, Ask)
            await pilot.press("backspace", "4", "enter")
            await wait(pilot, lambda: ("fork", "ctx_bbbbbb22", 4) in source.asked)

    go(test())


def test_a_model_is_deleted_by_who_types_its_name(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "models") as (app, pilot):
            await wait(pilot, lambda: app.pane.rows.cursor_key == "tiny")
            await pilot.press("D", *"other", "enter")
            await pilot.pause()
            assert source.asked == []
            await pilot.press("D", *"tiny", "enter")
            await wait(pilot, lambda: ("delete", "tiny") in source.asked)
            await pilot.press("enter")
            await wait(pilot, lambda: app.pane.TITLE == "chat")
            assert ("load", "tiny") in source.asked and app.pane.model == "tiny"

    go(test())


def test_the_palette_reaches_every_action(started: Any, scripted: Any, moments: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments())) as (app, _):
            titles = [command.title for command in app.get_system_commands(app.screen)]
            for pane in NAMES:
                assert f"Show {pane}" in titles and any(title.startswith(f"{pane}: ") for title in titles)

    go(test())


def test_a_loss_is_told_and_mended(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    from llamay.tui.moment import Lost

    async def test() -> None:
        source = scripted(moments())
        async with started(source, "batch") as (app, pilot):
            source.hear(Lost("no server answers at http://127.0.0.1:11435", 1.0))
            await wait(pilot, lambda: not app.connected)
            await wait(pilot, lambda: "DISCONNECTED" in text(app)[0])
            source.hear(moments(3.0))
            await wait(pilot, lambda: app.connected)
            await wait(pilot, lambda: "DISCONNECTED" not in text(app)[0])
            assert [note.level for note in app.journal.notes][-2:] == ["error", "information"]

    go(test())


def test_a_model_that_was_named_is_loaded_at_once(scripted: Any, tmp_path: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted()
        async with Terminal(source, tmp_path, load=True).run_test() as pilot:
            await wait(pilot, lambda: ("load", "") in source.asked)

    go(test())
