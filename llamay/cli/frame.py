"""The frame of the command line: finds a command in a literal table, imports only that one, translates its errors.

A command module has NAME, HELP (one line), optionally ALIASES, `configure(parser)` and
`run(args) -> exit code`.  What it needs beyond the standard library it imports inside run.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from llamay import __version__
from llamay.cli import interrupt
from llamay.cli.flags import Parser
from llamay.cli.terminal import note
from llamay.errors import LlamayError, UsageError

COMMANDS: dict[str, str] = {
    "run": "llamay.cli.run",
    "serve": "llamay.cli.serve",
    "tui": "llamay.cli.tui",
    "ps": "llamay.cli.ps",
    "stop": "llamay.cli.stop",
    "pull": "llamay.cli.pull",
    "list": "llamay.cli.list",
    "rm": "llamay.cli.rm",
    "cp": "llamay.cli.cp",
    "info": "llamay.cli.info",
    "context": "llamay.cli.context",
    "embed": "llamay.cli.embed",
    "rerank": "llamay.cli.rerank",
    "bench": "llamay.cli.bench",
    "benchfork": "llamay.cli.benchfork",
    "ppl": "llamay.cli.ppl",
    "verify": "llamay.cli.verify",
    "devices": "llamay.cli.devices",
    "env": "llamay.cli.env",
    "completion": "llamay.cli.completion",
    "version": "llamay.cli.version",
}
ALIASES: dict[str, str] = {"ls": "list", "remove": "rm", "copy": "cp"}

BROKEN_PIPE = 141  # what a shell reports for SIGPIPE


class Command(Protocol):
    """What every module of the table provides."""

    NAME: str
    HELP: str
    configure: Callable[[Parser], None]
    run: Callable[..., int]


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code: the error's own, 130 on Ctrl-C, 141 on a broken pipe."""
    words = sys.argv[1:] if words is None else list(words)
    name = "llamay"
    _open_streams()
    _tolerant_streams()
    with interrupt.armed():
        try:
            if words and words[0] in {**COMMANDS, **ALIASES}:
                name = f"llamay {words[0]}"
            code = _dispatch(words)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            return interrupt.EXIT_CODE
        except BrokenPipeError:
            _drop_stdout()
            return BROKEN_PIPE
        except LlamayError as error:
            note(str(error), name)
            return error.exit_code
        except OSError as error:
            note(_said(error), name)
            return 1
        except SystemExit as stop:  # argparse ends -help this way
            return int(stop.code or 0)


def load(name: str) -> Command:
    """Imports the module of a command; raises UsageError for a name that is none."""
    known = ALIASES.get(name, name)
    if known not in COMMANDS:
        close = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"no command {name}{hint} (`llamay help` lists them)")
    return cast(Command, importlib.import_module(COMMANDS[known]))


def parser_of(command: Command) -> Parser:
    """The configured parser of a command."""
    parser = Parser(f"llamay {command.NAME}", description=command.HELP)
    command.configure(parser)
    return parser


def overview() -> str:
    """The text of `llamay help`: every command with its line."""
    lines = ["usage: llamay COMMAND [flags]", "", f"llamay {__version__}: GGUF models on WGSL.", ""]
    lines += [f"  {name:<12}{load(name).HELP}" for name in COMMANDS]
    lines += ["", "`llamay COMMAND -help` explains one. Flags are written -name or --name."]
    return "\n".join(lines)


def _dispatch(words: Sequence[str]) -> int:
    first = words[0] if words else ""
    if first in ("", "help", "-h", "-help", "--help"):
        if len(words) > 1 and first == "help":
            return _dispatch([words[1], "-help"])
        print(overview(), file=sys.stdout if first else sys.stderr)
        return 0 if first else UsageError.exit_code
    if first in ("-version", "--version"):
        return _dispatch(["version", *words[1:]])
    command = load(first)
    return command.run(parser_of(command).parse(words[1:]))


def _said(error: OSError) -> str:
    """Without its number: `notes.txt: No such file or directory`."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _open_streams() -> None:
    """A stream the caller closed becomes the null device, before a file opened later gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _tolerant_streams() -> None:
    """A character the terminal's encoding lacks is shown as '?' instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _drop_stdout() -> None:
    """The reader is gone: what is still buffered goes nowhere, so that closing stays quiet."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
