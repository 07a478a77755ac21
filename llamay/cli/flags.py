"""Flags of the command line: Go style and double dash alike, never abbreviated, in any order."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from llamay.errors import UsageError

Completes = Literal["", "model", "file", "folder", "command", "shell"]


_NUMBERS = {"int": "a whole number", "float": "a number"}
_NO_NUMBER = re.compile(r"^(-[\w-]+)\S*: invalid (int|float) value: (.*)$", re.DOTALL)
_NO_CHOICE = re.compile(r"^(\S+): invalid choice: (.*) \(choose from (.*)\)$", re.DOTALL)
_TOO_MANY = re.compile(r"^unrecognized arguments: (?:-- )?(.*)$", re.DOTALL)
_MISSING = re.compile(r"^the following arguments are required: (.*)$")
_BOTH = re.compile(r"(?<=\w)/--?[\w/-]+(?=:)")  # the other spellings of a flag

KV_WORDS = "f32 (exact), f16, vq8 (8-bit values), q8 (both)"


class Parser(argparse.ArgumentParser):
    """An argument parser that reads `-name value`, `-name=value` and `--name ...` the same way.

    A flag that takes a value takes the next word whatever it looks like (`-p "- a list"`),
    flags and positional words may come in any order, and `--` ends the flags.
    """

    def __init__(self, prog: str, description: str = "", epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.completions: dict[str, Completes] = {}  # destination -> what completes it
        flag(self, "-help", "-h", action="help", help="show this help and exit")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the words after the command's name; raises UsageError for anything unknown."""
        flags, rest = self._arrange(words)
        return self.parse_args([*flags, "--", *rest] if rest else flags)

    def error(self, message: str) -> NoReturn:
        """Turns argparse's complaint into a UsageError, which the frame prints."""
        said = _NO_NUMBER.sub(lambda found: f"{found[1]} is {found[3]}; expected {_NUMBERS[found[2]]}", message.removeprefix("argument "))
        said = _NO_CHOICE.sub(lambda found: f"{found[1]} is {found[2]}; it may be {_or(found[3])}", _BOTH.sub("", said))
        said = _MISSING.sub(self._wanted, said)
        said = _TOO_MANY.sub(lambda found: f"there is no place for {found[1]!r}", said)
        raise UsageError(f"{said} (see `{self.prog} -help`)")

    def _wanted(self, found: re.Match[str]) -> str:
        """What is missing, and what it may be where that is a choice."""
        first = found[1].split(", ")[0]
        choices = next((action.choices for action in self.positionals() if first in (action.metavar, action.dest)), None)
        may = f"; it may be {_or(', '.join(map(str, choices)))}" if choices else ""
        return f"{found[1]} is missing{may}"

    def flags(self) -> list[argparse.Action]:
        """The registered flags, in the order of registration."""
        return [action for action in self._actions if action.option_strings]

    def positionals(self) -> list[argparse.Action]:
        """The registered positional arguments, in order."""
        return [action for action in self._actions if not action.option_strings]

    def _arrange(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Splits words into `--name` or `--name=value` flags and the positional rest."""
        known = {name: action for action in self.flags() for name in action.option_strings}
        flags: list[str] = []
        rest: list[str] = []
        queue = list(words)
        while queue:
            word = queue.pop(0)
            if word == "--":
                rest += queue
                break
            if not word.startswith("-") or word == "-" or _is_number(word):
                rest.append(word)
                continue
            name, equals, value = word.partition("=")
            action = known.get(name)
            if action is None:
                raise UsageError(f"no flag {name}{_nearest(name, known)} (see `{self.prog} -help`)")
            if equals or action.nargs == 0:
                flags.append(f"{long_name(action)}{equals}{value}")
            elif queue:
                flags.append(f"{long_name(action)}={queue.pop(0)}")
            else:
                raise UsageError(f"flag {name} needs a value (see `{self.prog} -help`)")
        return flags, rest


def flag(parser: argparse.ArgumentParser, *names: str, completes: Completes = "", **options: Any) -> argparse.Action:
    """Registers `-name` and `--name` for each name given; options are those of add_argument.

    The first name is the one help shows and the destination's name.  `completes` says
    what the shell completes the value with; choices complete themselves.
    """
    strings: list[str] = []
    for name in names:
        bare = name.lstrip("-")
        strings += [f"-{bare}", f"--{bare}"]
    options.setdefault("dest", names[0].lstrip("-").replace("-", "_"))
    action = parser.add_argument(*strings, **options)
    _completes(parser, action, completes)
    return action


def argument(
    parser: argparse.ArgumentParser, name: str, *, completes: Completes = "", **options: Any
) -> argparse.Action:
    """Registers a positional argument; options are those of add_argument."""
    action = parser.add_argument(name, **options)
    _completes(parser, action, completes)
    return action


def json_flag(parser: argparse.ArgumentParser) -> argparse.Action:
    """Registers the flag every listing command has."""
    return flag(parser, "-json", action="store_true", help="print JSON on stdout")


def kv_flag(parser: argparse.ArgumentParser) -> argparse.Action:
    """Registers the flag of every command that computes."""
    from llamay.settings import KV_FORMATS

    return flag(parser, "-kv", choices=KV_FORMATS, metavar="F", help=f"how keys and values are kept: {KV_WORDS}")


def long_name(action: argparse.Action) -> str:
    """The double-dash spelling of a flag's first name."""
    return action.option_strings[1]


def _completes(parser: argparse.ArgumentParser, action: argparse.Action, completes: Completes) -> None:
    if completes and isinstance(parser, Parser):
        parser.completions[action.dest] = completes


def _or(choices: str) -> str:
    """`a, b or c` of argparse's `'a', 'b', 'c'`."""
    *others, last = choices.replace("'", "").split(", ")
    return f"{', '.join(others)} or {last}" if others else last


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _nearest(name: str, known: Sequence[str] | dict[str, argparse.Action]) -> str:
    bare = {option.lstrip("-"): option for option in known}
    close = difflib.get_close_matches(name.lstrip("-"), list(bare), n=1)
    return f"; did you mean -{close[0]}?" if close else ""


class _Formatter(argparse.HelpFormatter):
    """Help that shows one spelling of each flag and leaves paragraphs as written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        names = ", ".join(action.option_strings[::2])
        if action.nargs == 0:
            return names
        default = self._get_default_metavar_for_optional(action)
        return f"{names} {self._format_args(action, default)}"

    def _format_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None) -> str:
        if usage is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        words = [self._prog, "[flags]"]
        for action in actions:
            if not action.option_strings:
                words.append(self._format_args(action, self._get_default_metavar_for_positional(action)))
        return f"usage: {' '.join(words)}\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(indent + line for line in text.splitlines(keepends=True))
