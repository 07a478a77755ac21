"""What the terminal costs: the processor time of an application that watches a large engine, and of the engine's thread.

`python -m pytest bench/test_tui.py -s` prints the figures; TUI_SECONDS says for how long (60).
"""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from llamay.tui.app import NAMES, Terminal
from llamay.tui.moment import Group, Held, Model, News, Request, Run, Snapshot, Times
from llamay.tui.recording import Replay

SECONDS = float(os.environ.get("TUI_SECONDS", "60"))
PAGES, SLOTS, TICK = 1 << 16, 64, 0.25
SHARE = 0.05  # of one core


def moment(tick: int) -> Snapshot:
    """64 sequences that all grow, in 64k pages."""
    held = 2000 + 12 * tick
    grown = 12 * tick // 16
    each = 125 + grown
    runs: list[Run] = [(32, 0, SLOTS, 1, 0)]
    for slot in range(SLOTS):
        runs += [(93, slot, 1, 0, 32), (8, -1, 1, 1, -1)]
    runs += [(1, slot, 1, 0, 125 + number) for number in range(grown) for slot in range(SLOTS)]  # as they grew
    runs.append((PAGES - sum(run[0] for run in runs), -1, 0, 0, -1))
    requests = tuple(Request(slot, "decode", 1000, "", slot, slot, 512, held, held - 1000, 0.1, tick / 4) for slot in range(SLOTS))
    contexts = tuple(Held(slot, held, own=(each,), shared=(32,), created=1e9) for slot in range(SLOTS))
    group = Group(PAGES, each * SLOTS, 32, 8 * SLOTS, runs[-1][0], tuple(runs))
    times = Times(4 * tick, tick * 1e-3, tick * 1e-3, tick * 0.2, tick * 1e-3, tick * 1e-3, 0, 256 * tick)
    model = Model("synthetic", "a device", SLOTS, requests, 0, (group,), contexts, times)
    return Snapshot(1e9 + tick / 4, tick / 4, models=(model,))


class Ticking(Replay):
    """Tells a moment four times a second, made from JSON as a server's are; the time it takes is in the figure."""

    live = True

    def __init__(self) -> None:
        self.where = "a bench"

    def watch(self, hear: Any, stop: threading.Event) -> None:
        import msgspec

        lines = [msgspec.json.encode(moment(tick)) for tick in range(64)]
        tick = 0
        while not stop.wait(TICK):
            news: News = msgspec.json.decode(lines[tick % len(lines)], type=Snapshot)
            hear(news)
            tick += 1


@pytest.fixture(params=NAMES)
def pane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_takes_a_twentieth_of_a_core(pane: str, tmp_path: Path) -> None:
    async def watched() -> float:
        app = Terminal(Ticking(), tmp_path, pane)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause(3)  # what is made once
            assert app.snapshot is not None
            began = time.process_time()
            await asyncio.sleep(SECONDS)
            return time.process_time() - began

    spent = asyncio.run(watched())
    print(f"{pane}: {spent:.2f} s of processor time in {SECONDS:.0f} s: {spent / SECONDS:.1%} of a core")
    assert spent < SHARE * SECONDS


def test_the_engines_thread_loses_no_millisecond_a_tick() -> None:
    from llamay.kv import Cache

    cache = Cache(PAGES)
    for number in range(SLOTS):
        context = cache.match([])[0]
        cache.extend(context, 16 * 128)
        cache.commit(context, [number] * 16 * 128)
    best = min(_taken(cache) for _ in range(50))
    print(f"statistics of {PAGES} pages and {SLOTS} contexts: {best * 1e6:.0f} us on the engine's thread")
    assert best < 1e-3


def _taken(cache: Any) -> float:
    began = time.perf_counter()
    cache.stats()
    return time.perf_counter() - began
