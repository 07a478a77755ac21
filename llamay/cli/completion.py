"""`llamay completion`: a shell script made from the parsers; model names come from the store when Tab is pressed."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from llamay.cli.flags import Completes, Parser, argument, flag
from llamay.errors import UsageError

NAME = "completion"
HELP = "print the completion script of a shell: bash, zsh or fish"

EPILOG = """\
bash   source <(llamay completion bash)
zsh    source <(llamay completion zsh)
fish   llamay completion fish | source"""

# one name a line; a broken store completes nothing rather than printing an error into the line
MODELS = "llamay completion -models 2>/dev/null"


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "shell", nargs="?", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    flag(parser, "-models", action="store_true", help="print the installed names, as the scripts ask")


def run(args: argparse.Namespace) -> int:
    if args.models:
        from llamay import settings
        from llamay.cli import models

        print("\n".join(models.names(settings.load())))
        return 0
    if args.shell is None:
        raise UsageError("which shell? llamay completion bash, zsh or fish")
    make = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell]
    print(make(commands()), end="")
    return 0


@dataclass(frozen=True, slots=True)
class Option:
    """A flag as completion sees it."""

    names: tuple[str, ...]  # single dash, as help shows them
    help: str
    value: bool  # takes one
    completes: Completes
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as completion sees it."""

    name: str
    help: str
    options: tuple[Option, ...]
    completes: Completes  # its positional arguments
    choices: tuple[str, ...]


def commands() -> list[Entry]:
    """Every command, read from its parser."""
    from llamay import cli

    entries = []
    for name in cli.COMMANDS:
        command = cli.load(name)
        parser = cli.parser_of(command)
        options = tuple(_option(parser, action) for action in parser.flags())
        words = parser.positionals()
        completes: Completes = next((parser.completions[w.dest] for w in words if w.dest in parser.completions), "")
        choices = tuple(str(choice) for word in words for choice in word.choices or ())
        entries.append(Entry(name, command.HELP, options, completes, choices))
    return entries


def _option(parser: Parser, action: argparse.Action) -> Option:
    return Option(
        names=tuple(action.option_strings[::2]),
        help=str(action.help or ""),
        value=action.nargs != 0,
        completes=parser.completions.get(action.dest, ""),
        choices=tuple(str(choice) for choice in action.choices or ()),
    )


def bash(entries: list[Entry]) -> str:
    """A function for bash's `complete`; names with colons need the word-break characters put right."""
    lines = [
        "# llamay completion for bash; made by `llamay completion bash`",
        "_llamay() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="${COMP_WORDS[1]}" words="" kind=""',
        "  declare -F _get_comp_words_by_ref >/dev/null && _get_comp_words_by_ref -n : -c current -p previous",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    words="{" ".join(entry.name for entry in entries)} help"',
        "  else",
        '    case "$command:${previous/#--/-}" in',
    ]
    for entry, option in _valued(entries):
        pattern = "|".join(f"{entry.name}:{name}" for name in option.names)
        lines.append(f"      {pattern}) {_bash_kind(option.completes, option.choices)} ;;")
    lines += ["      *)", '        case "$command" in']
    for entry in entries:
        names = [name for option in entry.options for name in option.names]
        lines.append(f'          {entry.name}) case "$current" in')
        lines.append(f"""            --*) words="{" ".join(f"-{name}" for name in names)}" ;;""")
        lines.append(f"""            -*) words="{" ".join(names)}" ;;""")
        lines.append(f"            *) {_bash_kind(entry.completes, entry.choices)} ;;")
        lines.append("          esac ;;")
    lines += [
        "        esac ;;",
        "    esac",
        "  fi",
        '  case "$kind" in',
        f'    model) words="$({MODELS})"; compopt -o default ;;',
        "    file) compopt -o default ;;",
        "    folder) compopt -o dirnames ;;",
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        '  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$current"',
        "}",
        "complete -F _llamay llamay",
    ]
    return "\n".join(lines) + "\n"


def _bash_kind(completes: Completes, choices: tuple[str, ...]) -> str:
    return f'words="{" ".join(choices)}"' if choices else f"kind={completes or 'none'}"


def zsh(entries: list[Entry]) -> str:
    """A function for zsh's completion system."""
    lines = [
        "#compdef llamay",
        "# llamay completion for zsh; made by `llamay completion zsh`",
        f'_llamay_models() {{ local -a names; names=(${{(f)"$({MODELS})"}}); compadd -a names; _files }}',
        "_llamay() {",
        "  local -a commands",
        "  commands=(",
        *(f"    {_quoted(f'{entry.name}:{entry.help}')}" for entry in entries),
        "  )",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "  local command=$words[2]",
        "  shift words; (( CURRENT-- ))",
        "  case $command in",
    ]
    for entry in entries:
        specs = [_zsh_option(option) for option in entry.options]
        specs.append(_quoted(f"*:argument:{_zsh_action(entry.completes, entry.choices)}"))
        lines.append(f"    {entry.name}) _arguments {' '.join(specs)} ;;")
    lines += ["  esac", "}", "compdef _llamay llamay"]
    return "\n".join(lines) + "\n"


def _zsh_option(option: Option) -> str:
    help = option.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
    tail = f":value:{_zsh_action(option.completes, option.choices)}" if option.value else ""
    return " ".join(_quoted(f"{name}[{help}]{tail}") for name in option.names)


def _zsh_action(completes: Completes, choices: tuple[str, ...]) -> str:
    if choices:
        return f"({' '.join(choices)})"
    return {"model": "_llamay_models", "file": "_files", "folder": "_files -/"}.get(completes, " ")


def fish(entries: list[Entry]) -> str:
    """One `complete` line a command and flag."""
    lines = ["# llamay completion for fish; made by `llamay completion fish`", "complete -c llamay -f"]
    for entry in entries:
        lines.append(f"complete -c llamay -n __fish_use_subcommand -a {entry.name} -d {_quoted(entry.help)}")
        seen = f"-n {_quoted(f'__fish_seen_subcommand_from {entry.name}')}"
        for option in entry.options:
            for name in option.names:
                spelled = f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]} -l {name[1:]}"
                lines.append(f"complete -c llamay {seen} {spelled} -d {_quoted(option.help)}{_fish_value(option)}")
        words = _fish_words(entry.completes, entry.choices)
        if words:
            lines.append(f"complete -c llamay {seen}{words}")
    return "\n".join(lines) + "\n"


def _fish_value(option: Option) -> str:
    return f" -r{_fish_words(option.completes, option.choices)}" if option.value else ""


def _fish_words(completes: Completes, choices: tuple[str, ...]) -> str:
    if choices:
        return f" -a {_quoted(' '.join(choices))}"
    if completes == "model":
        return f" -F -a {_quoted(f'({MODELS})')}"
    return " -F" if completes in ("file", "folder") else ""


def _valued(entries: list[Entry]) -> Iterator[tuple[Entry, Option]]:
    return ((entry, option) for entry in entries for option in entry.options if option.value)


def _quoted(text: str) -> str:
    """In single quotes, as all three shells read them."""
    return "'" + text.replace("'", "'\\''") + "'"
