"""Talking: reading messages, the commands, and an answer that Ctrl-C cuts."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llamay import gguf, tok
from llamay.cli import chat
from llamay.gguf import Typed, ValueType
from llamay.sample import Sampling
from llamay.serve.loading import load
from llamay.serve.loading.language import Message
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.alone import Alone
from llamay.settings import Settings

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def chatty(tiny: Path, tmp_path: Path) -> Path:
    """The tiny model with a chat template."""
    path = tmp_path / "chatty.gguf"
    with gguf.open(tiny) as file:
        metadata = {key: file.metadata.typed(key) for key in file.metadata}
        metadata["tokenizer.chat_template"] = Typed(ValueType.STRING, TEMPLATE)
        gguf.write(path, metadata, [(t.name, t.type, t.shape, t.data) for t in file.tensors.values()])
    return path


def typed(*lines: str) -> Callable[[str], str]:
    """A person who types these lines and then Ctrl-D."""
    waiting: Iterator[str] = iter(lines)

    def line(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["  hello  "], "hello"),
        (["one \\", "two\\", "three"], "one \ntwo\nthree"),
        (['"""', "one", "  two", '"""'], "one\n  two"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        ([""], ""),
    ],
)
def test_a_message_may_have_several_lines(lines: list[str], message: str) -> None:
    assert chat.read(typed(*lines)) == message


def test_the_end_of_input_inside_a_message_leaves() -> None:
    for lines in ([], ['"""', "one"], ["one\\"]):
        with pytest.raises(EOFError):
            chat.read(typed(*lines))


def test_a_conversation_from_beginning_to_end(llamay: Run, chatty: Path, home: Path, capsys: Captured) -> None:
    lines = [
        "/help",
        "hello there",
        "/stats",
        "and again",
        "/hepl",
        "/system be brief",
        "hi",
        "/clear",
        "/bye",
        "unread",
    ]
    assert llamay("run", str(chatty), "-n", "5", "-temp", "0", typed="\n".join(lines)) == 0
    shown = capsys.readouterr()
    assert shown.err.count("stop: length") == 3
    assert "Ctrl-C          stops the answer" in shown.err
    assert "no command /hepl; did you mean /help?" in shown.err
    assert "the system message is set" in shown.err and shown.err.count("conversation is forgotten") == 2
    assert "statistics on" in shown.err and shown.err.count("readback") == 2
    assert ">>> " in shown.err and ">>> " not in shown.out
    assert shown.out.strip()


def test_the_end_of_input_leaves(llamay: Run, chatty: Path) -> None:
    assert llamay("run", str(chatty), typed="") == 0


def test_the_conversation_is_remembered(llamay: Run, chatty: Path, capsys: Captured) -> None:
    """The second answer is the one that both messages and the first answer lead to."""
    assert llamay("run", str(chatty), "-n", "4", "-temp", "0", typed="hello there\nand again\n") == 0
    said = capsys.readouterr().out
    with load.load(chatty, Settings(backend="numpy")) as loaded:
        first = answer(loaded, [user("hello there")])
        second = answer(loaded, [user("hello there"), {"role": "assistant", "content": first}, user("and again")])
    assert said == f"{first}\n{second}\n"


def test_an_error_takes_the_message_back_and_the_conversation_goes_on(
    llamay: Run, chatty: Path, capsys: Captured
) -> None:
    lines = ["word " * 300, "hello there"]
    assert llamay("run", str(chatty), "-n", "4", "-temp", "0", typed="\n".join(lines)) == 0
    shown = capsys.readouterr()
    assert "tokens and the context 256" in shown.err
    with load.load(chatty, Settings(backend="numpy")) as loaded:
        assert shown.out == answer(loaded, [user("hello there")]) + "\n"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_stops_the_answer_and_not_the_program(
    llamay: Run, chatty: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    presses = iter([False, False, True])

    def push(self: tok.Decoder, id: int, push: Callable[[tok.Decoder, int], str] = tok.Decoder.push) -> str:
        if next(presses, False):
            signal.raise_signal(signal.SIGINT)
        return push(self, id)

    monkeypatch.setattr(tok.Decoder, "push", push)
    assert llamay("run", str(chatty), "-n", "9", "-temp", "0", typed="hello there\nand again\n") == 0
    shown = capsys.readouterr()
    assert shown.err.count("(stopped)") == 1
    assert shown.err.count("stop: length") == 1


@pytest.mark.usefixtures("interruptible")
def test_a_stopped_question_ends_with_130(
    llamay: Run, chatty: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    presses = iter([True])  # a second one would end the tests where the first is not yet dealt with

    def push(self: tok.Decoder, id: int) -> str:
        if next(presses, False):
            signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr(tok.Decoder, "push", push)
    assert llamay("run", str(chatty), "hello", "-n", "9") == 130
    assert "stop:" not in capsys.readouterr().err


def test_a_system_message_and_what_is_piped_in_reach_the_template(llamay: Run, chatty: Path, capsys: Captured) -> None:
    words = ("run", str(chatty), "say", "it", "-system", "be brief", "-n", "4", "-temp", "0")
    assert llamay(*words, piped="twice") == 0
    said = capsys.readouterr().out
    with load.load(chatty, Settings(backend="numpy")) as loaded:
        messages = [{"role": "system", "content": "be brief"}, user("say it\ntwice")]
        assert said == answer(loaded, messages) + "\n"
    assert llamay("run", str(chatty), "-system", "be brief", "-n", "4", "-temp", "0", piped="say it\ntwice") == 0
    assert capsys.readouterr().out == said


def test_a_file_without_a_template_says_which_one_is_used(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("run", str(tiny), "hello", "-n", "2", "-temp", "0") == 0
    assert "the file has no chat template; using plain" in capsys.readouterr().err


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(loaded: load.Loaded, messages: list[Message]) -> str:
    """Four greedy tokens."""
    prompt = loaded.language.chat(messages)
    request = Request(tuple(prompt.tokens), Sampling(temperature=0.0), Limits(tokens=4))
    tokens = Alone(loaded.executor, loaded.context).run(request).choices[0].tokens
    decoder = loaded.decoder(prompt.tokens)
    return "".join([*map(decoder.push, tokens), decoder.finish()])
