"""Talking in a terminal: history, commands, several lines, and Ctrl-C that stops the answer and not the program."""

import contextlib
import difflib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llamay.cli import answer, interrupt
from llamay.cli.terminal import folded, note, plain
from llamay.errors import LlamayError
from llamay.sample import Sampling
from llamay.serve.engine import Engine
from llamay.serve.loading.language import Message
from llamay.serve.loading.load import Loaded
from llamay.serve.request import Limits

PROMPT, MORE = ">>> ", "... "
FENCE = '"""'

HELP = f"""\
/help           this text
/clear          forget the conversation
/system TEXT    set the system message and forget the conversation
/stats          switch the statistics after each answer on or off
/bye            leave; so does Ctrl-D
{FENCE}             begins and ends several lines; a \\ at a line's end goes on, too
Ctrl-C          stops the answer"""


def opening(system: str | None, question: str) -> list[Message]:
    """The messages of a conversation that begins with this question."""
    return [*_system(system), {"role": "user", "content": question}]


def talk(
    engine: Engine, loaded: Loaded, sampling: Sampling, limits: Limits, system: str | None, seed: int | None
) -> int:
    """Reads questions and answers them until the person leaves."""
    print(f"{folded(plain(loaded.describe()), sys.stderr)}\n/help explains, /bye leaves", file=sys.stderr)
    talking = _Talk(engine, loaded, sampling, limits, seed, _system(system))
    with _history(loaded.settings.cache / "history"):
        while True:
            try:
                text = read(_line)
            except EOFError:
                print(file=sys.stderr)
                return 0
            except KeyboardInterrupt:
                interrupt.rearm()
                print("\n/bye or Ctrl-D leaves", file=sys.stderr)
                continue
            if text.startswith("/"):
                if talking.command(text):
                    return 0
            elif text:
                talking.ask(text)


def read(line: Callable[[str], str]) -> str:
    """One message: a line, lines ending in a backslash, or lines between fences.  Raises EOFError at the end."""
    text = line(PROMPT).strip()
    if text.startswith(FENCE):
        lines = [text[len(FENCE) :]]
        while not lines[-1].rstrip().endswith(FENCE):
            lines.append(line(MORE))
        return "\n".join(lines).rstrip().removesuffix(FENCE).strip("\n")
    while text.endswith("\\"):
        text = f"{text[:-1]}\n{line(MORE).rstrip()}"
    return text


@dataclass(slots=True)
class _Talk:
    """The state of one conversation."""

    engine: Engine
    loaded: Loaded
    sampling: Sampling
    limits: Limits
    seed: int | None
    messages: list[Message]
    stats: bool = False
    commands: tuple[str, ...] = field(default=("/help", "/clear", "/system", "/stats", "/bye"))

    def ask(self, text: str) -> None:
        """Answers one message.  An error is shown and the message taken back; the conversation goes on."""
        self.messages.append({"role": "user", "content": text})
        try:
            prompt = self.loaded.language.chat(self.messages)
            given = answer.show(self.engine, self.loaded, prompt, self.sampling, self.limits, self.seed)
        except LlamayError as error:
            self.messages.pop()
            note(str(error))
            return
        interrupt.rearm()  # Ctrl-C may have come with the last word, too
        self.messages.append({"role": "assistant", "content": given.text})
        if given.done is None:
            print("(stopped)", file=sys.stderr)
        else:
            answer.close(given.done, self.loaded, self.sampling, stats=self.stats)

    def command(self, text: str) -> bool:
        """Carries out a /command; True when it is time to leave."""
        word, _, rest = text.partition(" ")
        match word:
            case "/bye" | "/exit" | "/quit":
                return True
            case "/help" | "/?":
                print(HELP, file=sys.stderr)
            case "/clear":
                self.messages = [message for message in self.messages if message["role"] == "system"]
                print("the conversation is forgotten", file=sys.stderr)
            case "/system":
                self.messages = _system(rest.strip())
                now = "set" if self.messages else "empty"
                print(f"the system message is {now}; the conversation is forgotten", file=sys.stderr)
            case "/stats":
                self.stats = not self.stats
                print(f"statistics {'on' if self.stats else 'off'}", file=sys.stderr)
            case _:
                close = difflib.get_close_matches(word, self.commands, n=1)
                print(f"no command {word}{f'; did you mean {close[0]}?' if close else ''} (/help lists them)", file=sys.stderr)
        return False


def _system(text: str | None) -> list[Message]:
    return [{"role": "system", "content": text}] if text else []


def _line(prompt: str) -> str:
    """One line from the person; the prompt goes to stderr where stdout is no terminal."""
    if sys.stdout.isatty():
        return input(prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextlib.contextmanager
def _history(path: Path) -> Iterator[None]:
    """Line editing with a history that outlives the program, where the system has readline."""
    try:
        import readline
    except ImportError:  # Windows' own console edits lines
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk must not cost the conversation's last words
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
