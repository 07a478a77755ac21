"""The documents say what is so: the command page is made from the parsers, and every example parses."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from llamay import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def maker(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if found == language:
                yield page.name, text


def examples() -> list[tuple[str, str]]:
    """Every llamay line of the shell examples, pipes and redirections cut off."""
    found = []
    for page, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s[|>]\s?|\s#\s", line):
                if part.strip().startswith("llamay "):
                    found.append((page, part.strip()))
    return found


@pytest.mark.parametrize("name", ["cli", "supported"])
def test_a_page_that_is_made_is_current(name: str) -> None:
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == maker(f"make_{name}").page(), "run `make docs`"


@pytest.mark.parametrize(("page", "line"), examples())
def test_an_example_parses(page: str, line: str) -> None:
    _, name, *words = shlex.split(line)
    cli.parser_of(cli.load(name)).parse(words)


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8"))}
    named |= {target for _, text in blocks("sh") for target in re.findall(r"^make ([a-z]+)", text, re.MULTILINE)}
    assert named and named <= targets


def test_links_to_files_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
