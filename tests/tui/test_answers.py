"""What an answer has besides its text: thoughts that may be looked at, and code that may be taken away."""

import asyncio
from typing import Any

import pytest

from llamay.tui.asking import Choose
from llamay.tui.conversation import code
from llamay.tui.exchange import figures
from llamay.tui.moment import Answered

CODED = "So:\n\n```python\nprint(1)\nprint(2)\n```\nor\n\n~~~\n```\n~~~\nDone."


@pytest.mark.parametrize(
    ("answer", "blocks"),
    [
        (CODED, [("python", "print(1)\nprint(2)"), ("", "```")]),
        ("no code, `x` apart", []),
        ("```sh\nls\n", [("sh", "ls")]),  # cut off
        ("````md\n```\na\n```\n````", [("md", "```\na\n```")]),
        ("    ```\nindented", []),
    ],
)
def test_blocks_of_code(answer: str, blocks: list[tuple[str, str]]) -> None:
    assert code(answer) == blocks


def test_figures_name_no_count_that_nobody_told() -> None:
    whole = figures(Answered(1, "ctx_a", 20, 16, 9, 0.21, 0.2, "end"))
    assert whole == "9 tokens · ttft 210ms · 40.0 tok/s · 16 of 20 cached · the model ended it"
    assert figures(Answered(1, "ctx_a", first=0.21, reason="cancel")) == "ttft 210ms · stopped"


def test_y_asks_which_block_is_meant(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        source.pieces = [CODED]
        async with started(source) as (app, pilot):
            copied: list[str] = []
            app.copy_to_clipboard = copied.append
            await pilot.press(*"how", "enter")
            await wait(pilot, lambda: bool(app.pane.conversation.turns) and not app.pane.conversation.waiting)
            await pilot.press("escape", "y")
            await wait(pilot, lambda: isinstance(app.screen, Choose))
            await wait(pilot, lambda: all(part in "\n".join(text(app)) for part in ("1  block of python, 2 lines: print(1)", "3  the whole answer")))
            await pilot.press("9", "2")
            await wait(pilot, lambda: len(copied) == 1)
            for keys, count in ((("y", "escape"), 1), (("y", "y"), 2), (("y", "3"), 3)):
                await pilot.press(keys[0])
                await wait(pilot, lambda: isinstance(app.screen, Choose))
                await pilot.press(keys[1])
                await wait(pilot, lambda count=count: not isinstance(app.screen, Choose) and len(copied) == count)
            assert copied == ["```", "print(1)\nprint(2)", CODED]

    asyncio.run(test())


def test_thoughts_are_a_line_until_they_are_asked_for(started: Any, scripted: Any, moments: Any, wait: Any, text: Any) -> None:
    async def test() -> None:
        source = scripted(moments())
        source.thoughts = ["The sea ", "has water\x1b[2J."]
        async with started(source) as (app, pilot):
            chat = app.pane
            await pilot.press(*"what", "enter")
            await wait(pilot, lambda: bool(chat.conversation.turns) and not chat.conversation.waiting)
            await wait(pilot, lambda: any("thought, 4 words (t shows)" in line for line in text(app)))
            assert (chat.conversation.turns[1].thoughts, chat.copied()) == ("The sea has water\x1b[2J.", "The *sea* is wide.")
            await pilot.press("escape", "t")
            await wait(pilot, lambda: any("The sea has water?[2J." in line for line in text(app)))
            await pilot.press("t")
            await wait(pilot, lambda: not any("has water" in line for line in text(app)))
            await pilot.press("T", "r")
            await wait(pilot, lambda: len(source.asked) == 2)
            assert [asked.think for asked in source.asked] == [True, False]

    asyncio.run(test())
