"""The sources against the real thing: a server on a socket, and an engine in this process, through the same steps."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamay import settings
from llamay.client import Client, Event
from llamay.errors import LlamayError, Refused
from llamay.tui.local import Local
from llamay.tui.moment import Answered, Asked, Lost, Piece, Snapshot
from llamay.tui.remote import Remote

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings: folders of the tests' own, and NumPy, which is ready at once."""
    root = tmp_path_factory.mktemp("sources")
    return {"models": root / "models", "contexts": root / "contexts", "backend": "numpy"}


@pytest.fixture(scope="module")
def site(folders: dict[str, Any]) -> Any:
    """What a server with a tiny model is made of."""
    from llamay.serve.models import Models
    from llamay.server.configuration import Configuration
    from llamay.server.site import Site

    made = Configuration(port=0)
    return Site(Models(settings.load(folders), made.bounds, str(TINY)), made)


@pytest.fixture(scope="module")
def server(site: Any) -> Iterator[str]:
    """Its URL."""
    from llamay.server import main

    listening = main.listen(site)
    thread = threading.Thread(target=listening.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.port}"
    site.cut.set()
    listening.close()
    thread.join(10)
    site.models.close()


@pytest.fixture(scope="module", params=["remote", "local"])
def source(request: pytest.FixtureRequest, server: str, folders: dict[str, Any]) -> Iterator[Any]:
    made = Remote(Client(server)) if request.param == "remote" else Local(settings.load(folders), str(TINY))
    yield made
    made.close()


def asked(source: Any, text: str, before: str = "", number: int = 1) -> tuple[str, Answered]:
    news = list(source.answer(Asked(number, text, before, most=8), threading.Event()))
    assert isinstance(news[-1], Answered) and all(isinstance(one, Piece) for one in news[:-1])
    return "".join(one.text for one in news[:-1]), news[-1]


def seen(source: Any, so: Any, seconds: float = 60.0) -> Snapshot:
    """The first snapshot of which something is so."""
    found: list[Snapshot] = []
    stop = threading.Event()

    def hear(news: Any) -> None:
        if isinstance(news, Snapshot) and so(news):
            found.append(news)
            stop.set()

    thread = threading.Thread(target=source.watch, args=(hear, stop))
    thread.start()
    thread.join(seconds)
    stop.set()
    thread.join(60)
    assert found, "no such snapshot came"
    return found[0]


def test_an_answer_is_a_context_that_is_gone_on_with_forked_and_dropped(source: Any) -> None:
    _, first = asked(source, "one two three")
    assert first.error == "" and first.generated > 0 and first.first > 0 and first.context.startswith("ctx_")
    _, second = asked(source, "and then", first.context, 2)
    assert second.prompt > first.prompt + first.generated and second.cached > 0
    forks = source.fork(first.context, 2)
    found = seen(source, lambda snapshot: {one.id for one in snapshot.kept} >= {first.context, second.context, *forks})
    kept = {one.id: one for one in found.kept}
    assert kept[second.context].parent == kept[forks[0]].parent == first.context
    parting = source.diff(second.context, forks[0])
    assert parting.common == kept[forks[0]].tokens
    source.rewind(forks[0], 4)
    assert seen(source, lambda snapshot: any(one.id == forks[0] and one.tokens == 4 for one in snapshot.kept))
    assert source.save(forks[1], f"saved by {type(source).__name__}")
    for context in (*forks, second.context, first.context):
        source.drop(context)
    with pytest.raises(LlamayError, match="not kept"):
        source.fork(first.context)
    assert found.models[0].pages[0].map and found.model(found.models[0].name) is not None


def test_thoughts_are_told_from_the_answer(source: Any, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    models = source.models if isinstance(source, Local) else site.models
    language = models.language(models.default)
    begins = language.template.render([{"role": "user", "content": "hello"}]).text.rstrip()[-1]
    for thought in (False, True):
        if thought:  # the prompt opens one, and it never ends
            monkeypatch.setattr(language.template, "thinks", (begins, "</never>"), raising=False)
        pieces = []
        for _ in range(20):  # seeds are drawn, and an answer may end before its first character
            *pieces, end = source.answer(Asked(20 + thought, "hello", most=8), threading.Event())
            assert end.error == ""
            if pieces:
                break
        assert {one.thought for one in pieces} == {thought}


def test_a_stop_is_heard_while_it_generates(source: Any) -> None:
    stop, news = threading.Event(), []
    for one in source.answer(Asked(9, "a b c d"), stop):
        news.append(one)
        stop.set()
    assert news[-1].reason == "cancel" or news[-1].reason in ("end", "length", "context"), news[-1]
    assert isinstance(news[-1], Answered) and news[-1].error == ""


def test_errors_are_told_in_words(source: Any) -> None:
    with pytest.raises(LlamayError, match=r"not under way|over already"):
        source.cancel(10**9)
    with pytest.raises(LlamayError, match=r"not installed|not found"):
        source.load("nobody/has-this")


def test_models_are_listed_with_what_they_are(source: Any) -> None:
    listed = source.installed()
    assert all(one.name and one.bytes > 0 for one in listed)
    assert {(one.quant, one.family, one.parameters) for one in listed} == {("F16", "llama", "170K")}


def test_a_server_that_is_not_there_is_lost_and_tried_again() -> None:
    news: list[Any] = []
    stop = threading.Event()
    remote = Remote(Client("http://127.0.0.1:9"))
    thread = threading.Thread(target=remote.watch, args=(news.append, stop))
    thread.start()
    until = time.monotonic() + 60
    while len(news) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    stop.set()
    thread.join(60)
    assert not thread.is_alive() and len(news) >= 2 and all(isinstance(one, Lost) and "no server answers" in one.reason for one in news)


@pytest.mark.parametrize("data", [None, [], {}, {"response": {"id": 3}}, {"delta": 5, "response": {"status": "completed", "usage": None}}])
def test_answers_of_another_shape_are_refused(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server of another kind says ends in an error that a screen can show."""
    names = ("response.created", "response.output_text.delta", "response.completed")
    monkeypatch.setattr(Client, "events", lambda self, path, body=None, line=None: iter([Event(name, data) for name in names]))
    monkeypatch.setattr(Client, "get", lambda self, path: data)
    monkeypatch.setattr(Client, "post", lambda self, path, body: data)
    monkeypatch.setattr(Client, "values", lambda self, path, body: iter([data, {"total": "many"}]))
    remote = Remote(Client("http://127.0.0.1:9"))
    asks: list[Any] = [
        lambda: list(remote.answer(Asked(1, "m", "hi"), threading.Event())), remote.installed, lambda: remote.fork("a"),
        lambda: remote.save("a", ""), lambda: remote.diff("a", "b"), lambda: list(remote.pull("m")),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(Refused, match="answers otherwise"):
            ask()


def mapped(pages: int, *runs: list[int]) -> dict[str, Any]:
    group = {"pages": pages, "contexts": 0, "both": 0, "tree": 0, "free": 0, "map": runs}
    return {"time": 1.0, "models": [{"name": "m", "device": "d", "slots": 1, "pages": [group]}]}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"time": 1e300}, "$.time"),  # no calendar has it
        ({"time": -5.0}, "$.time"),
        (mapped(10**9, [10**9, -1, 0, 0, -1]), "a map of"),
        (mapped(4, [3, -1, 0, 0, -1], [2, -1, 0, 0, -1]), "a map of 5 pages where there are 4"),
        (mapped(4, [0, -1, 0, 0, -1]), "a map of"),
        (mapped(4, [1, 2**31, 0, 0, -1]), ".map"),
    ],
)
def test_a_moment_that_cannot_be_drawn_is_lost_sight_of(data: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "events", lambda self, path, body=None, line=None: iter([Event("", data)]))
    heard: list[Any] = []
    stop = threading.Event()

    def hear(news: Any) -> None:
        heard.append(news)
        stop.set()

    Remote(Client("http://127.0.0.1:9")).watch(hear, stop)
    assert isinstance(heard[0], Lost) and where in heard[0].reason
