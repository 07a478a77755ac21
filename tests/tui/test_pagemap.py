"""The page map: each cell says what its page is, by address, by owner, and several pages a cell."""

import asyncio
from typing import Any

from textual.geometry import Region

from llamay.tui.pagemap import GUTTER, PageMap


def cells(map: PageMap) -> str:
    strips = map.render_lines(Region(0, 0, map.size.width, map.virtual_size.height))
    return "".join(strip.text[GUTTER:].rstrip() for strip in strips)


def test_glyphs_tell_owners(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "pages") as (app, pilot):
            map = app.pane.map
            await wait(pilot, lambda: cells(map) == "3333" + "█" * 12 + "▒▒▒" + "·" * 45 and app.focused is map)
            await pilot.press("s")
            await wait(pilot, lambda: cells(map).startswith("3333" + " " * 12))
            await pilot.press("s", "l")
            await wait(pilot, lambda: cells(map).startswith("3333bbcceeee"))
            await pilot.press("l", "z")
            await wait(pilot, lambda: cells(map) == "3▓██" + "▒" + "·" * 11 and map.zoom == 4)

    asyncio.run(test())


def test_the_cursor_knows_tokens_and_owners(started: Any, scripted: Any, moments: Any, wait: Any) -> None:
    async def test() -> None:
        async with started(scripted(moments()), "pages") as (app, pilot):
            map = app.pane.map
            await wait(pilot, lambda: map.cursor_page is not None and app.focused is map)
            page = map.cursor_page
            assert (page.number, page.owners, page.tree, page.tokens) == (0, 3, True, (0, 15))
            await pilot.press(*["right"] * 5)
            await wait(pilot, lambda: map.cursor_page.tokens == (80, 95))  # the second page of its run
            await pilot.press("g")
            await wait(pilot, lambda: cells(map)[:16] == "3333█◆██████████" and map.cursor_page.number == 5)
            await pilot.press("g", "o")
            await wait(pilot, lambda: map.cursor_page.number == 0)  # the next page of context 1, from the start again

    asyncio.run(test())


def test_64k_pages_are_drawn_by_line() -> None:
    map = PageMap()
    runs = tuple((16, number % 64, 1, 0, 0) for number in range(4096))
    map._runs = ()
    map.load(runs)
    assert map.pages == 65536 and map.cursor_page.tokens == (0, 15)
