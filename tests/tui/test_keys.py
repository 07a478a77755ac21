"""Keys, by the state they are pressed in."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from llamay.tui.app import NAMES, PANES, Terminal
from llamay.tui.asking import Ask, Confirm, Help
from llamay.tui.exchange import Exchange
from llamay.tui.keys import bound, keys


def go(test: Any) -> None:
    asyncio.run(test)


def test_digits_switch_screens_unless_a_field_has_the_focus(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments())) as (app, pilot):
            await wait(pilot, lambda: app.focused is app.query_one("#prompt"))
            await pilot.press("3")
            await wait(pilot, lambda: app.query_one("#prompt").text == "3")  # typed into the prompt
            assert app.pane.TITLE == "chat"
            await pilot.press("backspace", "escape")
            await wait(pilot, lambda: app.focused is app.query_one("#messages"))
            await pilot.press("i")
            await wait(pilot, lambda: app.focused is app.query_one("#prompt"))
            await pilot.press("escape")
            await wait(pilot, lambda: app.focused is app.query_one("#messages"))
            for number, name in enumerate(NAMES, 1):
                await pilot.press(str(number))
                await wait(pilot, lambda name=name: app.pane.TITLE == name)
                await wait(pilot, lambda: app.focused is not None and app.focused in app.pane.walk_children())  # it has the keys
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
            await wait(pilot, lambda: isinstance(app.screen, Help))
            for words in ("Fork: Asks how many", "Diff", "enter         Goes on from", "Pause", "q ctrl+q ctrl+c Quit"):
                await wait(pilot, lambda words=words: words in "\n".join(text(app)))
            await pilot.press("escape")
            await wait(pilot, lambda: not isinstance(app.screen, Help))

    go(test())


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_help_is_folded_as_wide_as_its_window(started: Any, scripted: Any, moments: Any, text: Any, wait: Any, columns: int) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "forks", (columns, 80)) as (app, pilot):
            await pilot.press("question_mark")
            await wait(pilot, lambda: any("escape leaves" in line for line in text(app)))
            told = [line.partition("\u2502")[2].partition("\u2502")[0] for line in text(app)]
            assert {line.strip() for line in told if re.match(r"  \S", line)} == {"forks", "everywhere", "escape leaves"}

    go(test())


@pytest.mark.parametrize("pane", PANES, ids=NAMES)
def test_help_has_each_key_once_and_the_palette_nothing_that_does_nothing(pane: Any) -> None:
    told = keys(pane)
    assert len({what for _, what in told}) == len(told), told
    for binding in bound(pane):
        assert hasattr(pane, f"action_{binding.action.partition('(')[0]}"), binding


def test_a_question_is_answered_forked_asked_again_and_edited(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source) as (app, pilot):
            chat, prompt = app.pane, app.query_one("#prompt")
            await wait(pilot, lambda: app.focused is prompt)
            await pilot.press(*"hello", "enter")
            await wait(pilot, lambda: chat.conversation.waiting == 0 and len(chat.conversation.turns) == 1)
            for words in ("> hello", "The sea is wide.", "16 of 20 cached", "ttft 210ms", "40.0 tok/s"):
                await wait(pilot, lambda words=words: any(words in line for line in text(app)))
            assert source.asked[0].before == ""
            await pilot.press("escape")
            await wait(pilot, lambda: isinstance(app.focused, Exchange))
            await pilot.press("f")
            await wait(pilot, lambda: chat.conversation.head == "ctx_fork0" and app.focused is prompt)
            await pilot.press(*"more", "enter")
            await wait(pilot, lambda: len(chat.conversation.turns) == 2 and not chat.conversation.waiting)
            assert source.asked[-1].before == "ctx_fork0" and source.asked[-1].parent == 1
            await pilot.press("escape")
            await wait(pilot, lambda: isinstance(app.focused, Exchange))
            await pilot.press("r")
            await wait(pilot, lambda: len(chat.conversation.turns) == 3 and not chat.conversation.waiting)
            assert (source.asked[-1].text, source.asked[-1].before) == ("more", "ctx_fork0")
            await wait(pilot, lambda: isinstance(app.focused, Exchange) and app.focused.number == 3)
            await pilot.press("e")
            await wait(pilot, lambda: prompt.text == "more" and app.focused is prompt)
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
            await pilot.press("escape")
            await wait(pilot, lambda: isinstance(app.focused, Exchange))
            await pilot.press("x")
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
            await wait(pilot, lambda: app.pane.TITLE == "requests" and app.pane.rows.cursor_key == "7" and app.focused is app.pane.rows)
            await pilot.press("k")
            await wait(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await wait(pilot, lambda: ("cancel", 7) in source.asked)

    go(test())


def test_requests_are_filtered_and_sorted(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "requests") as (app, pilot):
            keys = lambda: [row.key for row in app.pane.rows.table_rows]  # noqa: E731
            await wait(pilot, lambda: keys() == ["9", "8", "7", "5", "4", "3"] and app.focused is app.pane.rows)
            await pilot.press("slash")
            await wait(pilot, lambda: isinstance(app.focused, Input))
            await pilot.press(*"state:failed", "enter")
            await wait(pilot, lambda: keys() == ["4"] and app.focused is app.pane.rows)
            await pilot.press("escape")
            await wait(pilot, lambda: len(keys()) == 6 and app.focused is app.pane.rows)
            await pilot.press("v")
            await wait(pilot, lambda: keys() == ["3", "4", "5", "7", "8", "9"])

    go(test())


def test_two_branches_are_compared(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "forks") as (app, pilot):
            await pilot.press("equals_sign", "down", "equals_sign")
            await wait(pilot, lambda: any("the dog ran" in line for line in text(app)))
            assert source.asked == [("diff", "ctx_aaaaaa11", "ctx_bbbbbb22")]
            await pilot.press("f")
            await wait(pilot, lambda: isinstance(app.screen, Ask) and isinstance(app.focused, Input))
            await pilot.press("backspace", "4", "enter")
            await wait(pilot, lambda: ("fork", "ctx_bbbbbb22", 4) in source.asked)

    go(test())


def test_a_model_is_deleted_by_who_types_its_name(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        async with started(source, "models") as (app, pilot):
            rows = app.pane.rows
            for typed, told in (("other", "nothing was deleted"), ("tiny", "tiny is deleted")):
                await wait(pilot, lambda: rows.cursor_key == "tiny" and app.focused is rows)
                await pilot.press("D")
                await wait(pilot, lambda: isinstance(app.screen, Ask) and isinstance(app.focused, Input))
                await pilot.press(*typed, "enter")
                await wait(pilot, lambda told=told: any(told in note.text for note in app.journal.notes))
                assert (("delete", "tiny") in source.asked) == (typed == "tiny")
            await wait(pilot, lambda: rows.cursor_key == "tiny" and app.focused is rows)
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


def test_while_a_model_is_loaded_the_chat_says_so(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(msgspec.structs.replace(moments(running=False), models=(), kept=(), loading=("tiny",)))
        async with started(source) as (app, pilot):
            await wait(pilot, lambda: any("tiny is being loaded; you may ask already" in line for line in text(app)))
            source.hear(moments(1.0, running=False))
            await wait(pilot, lambda: any("tiny on " in line for line in text(app)))

    go(test())


def test_a_model_that_was_named_is_loaded_at_once(scripted: Any, tmp_path: Any, wait: Any) -> None:
    async def test() -> None:
        source = scripted()
        async with Terminal(source, tmp_path, load=True).run_test() as pilot:
            await wait(pilot, lambda: ("load", "") in source.asked)

    go(test())
