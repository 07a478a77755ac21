"""Completion scripts: made from the parsers, and the bash one asked as bash asks it."""

import subprocess

import pytest

from llamay import cli
from llamay.cli import completion

ASK = """
eval "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
llamay() { echo smollm2:latest; }
compopt() { :; }  # it exists only while bash completes
_llamay; printf '%s\\n' "${COMPREPLY[@]}"
"""


def ask(*words: str) -> list[str]:
    script = completion.bash(completion.commands())
    command = ["bash", "-c", ASK, "ask", script, "llamay", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_commands_complete() -> None:
    assert set(ask("")) == {*cli.COMMANDS, "help"}
    assert ask("vers") == ["version"]


def test_flags_complete_with_one_dash_and_two() -> None:
    assert ask("run", "-top-") == ["-top-k", "-top-p"]
    assert ask("run", "--top-") == ["--top-k", "--top-p"]


def test_values_complete() -> None:
    assert ask("run", "-kv", "") == ["f32", "f16", "vq8", "q8"]
    assert ask("run", "--kv", "f1") == ["f16"]
    assert ask("run", "-m", "smo") == ["smollm2:latest"]
    assert ask("run", "") == ["smollm2:latest"]
    assert ask("completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_flag_is_in_every_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for entry in completion.commands():
        assert entry.name in script
        for option in entry.options:
            assert all(name.lstrip("-") in script for name in option.names)


def test_a_shell_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion"]) == 2
    assert cli.main(["completion", "tcsh"]) == 2
    assert "SHELL is 'tcsh'; it may be bash, zsh or fish" in capsys.readouterr().err
