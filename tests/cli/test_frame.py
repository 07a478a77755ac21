"""The frame: help, exit codes, Ctrl-C, broken pipes, and what a --help costs."""

import json
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llamay import cli, errors
from llamay.cli.flags import Parser

FAKE = """
import signal, sys, types
from llamay import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts us with it ignored
fake = types.ModuleType("fake")
fake.NAME, fake.HELP, fake.configure = "fake", "a fake", lambda parser: None
def run(args):
    {body}
    return 0
fake.run = run
sys.modules["fake"] = fake
cli.COMMANDS["fake"] = "fake"
sys.exit(cli.main(["fake"]))
"""

SLEEPS = "print('ready', flush=True); import time; time.sleep(600)"
CLEANS_UP_FOREVER = """
    import time
    try:
        print('ready', flush=True); time.sleep(600)
    finally:
        print('cleaning', flush=True); time.sleep(600)
"""


def start(body: str) -> "subprocess.Popen[str]":
    program = FAKE.format(body=body)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def llamay(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "llamay", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_keeps_the_agreed_shape(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = cli.load(name)
    assert name == command.NAME
    assert command.HELP and "\n" not in command.HELP and len(command.HELP) < 90
    assert isinstance(cli.parser_of(command), Parser)
    assert cli.main([name, "--help"]) == 0
    assert f"usage: llamay {name} [flags]" in capsys.readouterr().out


def test_aliases_are_those_the_modules_state() -> None:
    stated = {alias: name for name in cli.COMMANDS for alias in getattr(cli.load(name), "ALIASES", ())}
    assert stated == cli.ALIASES


@pytest.mark.parametrize("words", [["help"], ["-h"], ["--help"], ["-help"]])
def test_help_lists_the_commands_on_stdout(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    assert all(f"  {name} " in shown.out for name in cli.COMMANDS)
    assert shown.err == ""


def test_no_command_at_all_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "usage: llamay COMMAND" in shown.err


def test_help_of_a_command_and_version_as_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "env"]) == 0
    assert "usage: llamay env" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("llamay 0.")


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rnu"]) == 2
    assert "did you mean run?" in capsys.readouterr().err


def _kinds(kind: type[errors.LlamayError]) -> list[type[errors.LlamayError]]:
    return [kind] + [deeper for sub in kind.__subclasses__() for deeper in _kinds(sub)]


@pytest.mark.parametrize("error", _kinds(errors.LlamayError))
def test_every_error_is_a_message_and_its_code(
    error: type[errors.LlamayError], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: object) -> int:
        raise error("what was found")

    monkeypatch.setattr(cli.load("version"), "run", fail)
    assert cli.main(["version"]) == error.exit_code != 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "llamay version: what was found\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "notes.txt"
    assert cli.main(["ppl", "any.gguf", "-f", str(missing)]) == 1
    assert capsys.readouterr().err == f"llamay ppl: {missing}: No such file or directory\n"


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    running = start(SLEEPS)
    assert running.stdout is not None and running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize(
    ("module", "entry"),
    [("llamay.cli", "main"), ("llamay.cli.frame", "server"), ("argparse", "main"), ("llamay.errors", "main"), ("llamay.errors", "server")],
)
def test_ctrl_c_while_modules_are_imported_ends_quietly_too(entry: str, module: str) -> None:
    program = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressing())
from llamay import __main__
sys.exit(__main__.{entry}())
"""
    ran = subprocess.run([sys.executable, "-c", program, "version"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_the_scripts_are_those_that_bear_it() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"llamay": "llamay.__main__:main", "llamay-server": "llamay.__main__:server"}


def test_a_second_ctrl_c_works_at_once() -> None:
    running = start(CLEANS_UP_FOREVER)
    assert running.stdout is not None and running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == "cleaning\n"
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)  # it would sleep for longer
    assert running.returncode == -signal.SIGINT


def test_a_reader_that_goes_away_is_met_in_silence() -> None:
    running = start("import time; [print('x' * 1000) for _ in range(1000)]")
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=120) == 141
    assert running.stderr.read() == ""


def test_a_reader_gone_before_the_last_flush() -> None:
    running = start("sys.stdin.read(); print('late')")
    assert running.stdin is not None and running.stdout is not None and running.stderr is not None
    running.stdout.close()
    running.stdin.close()
    assert running.wait(timeout=120) == 141
    assert running.stderr.read() == ""


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_help_costs_less_than_150_ms_of_cpu(words: list[str]) -> None:
    """Where Python alone takes 25 ms to start; on slower machines as many times that.  Of all commands: what they import, below."""
    bare = min(_cpu([sys.executable, "-c", "pass"]) for _ in range(3))
    assert min(_cpu([sys.executable, "-m", "llamay", *words]) for _ in range(3)) < max(0.150, 6 * bare)


def _cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert subprocess.run(command, capture_output=True).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_parsing_loads_nothing_heavy() -> None:
    program = (
        "import sys; from llamay import cli;"
        "[cli.parser_of(cli.load(name)) for name in cli.COMMANDS];"
        "print(*[name for name in ('numpy', 'wgpu', 'jinja2', 'httpx', 'regex', 'asyncio', 'textual', 'falcon', 'llamay.serve') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_version_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "-json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) >= {"llamay", "python", "wgpu", "numpy"}
