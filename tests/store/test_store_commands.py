"""pull, list, rm and cp as a person types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llamay.cli import main
from llamay.cli.list import age

ENCODER = Path(__file__).parents[1] / "data" / "encoders" / "bert-mean.f16.gguf"


@pytest.fixture
def llamay(kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command against the test's store; returns exit code, stdout, stderr."""
    monkeypatch.setenv("LLAMAY_MODELS", str(kit.store.root))
    monkeypatch.setenv("LLAMAY_CONFIG", str(kit.store.root.parent / "config.toml"))
    (kit.store.root.parent / "config.toml").write_text("")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def url(kit) -> str:
    kit.server.put("/tiny.gguf", kit.gguf(), etag='"one"')
    return f"{kit.server.url}/tiny.gguf"


def test_pull_list_cp_rm(kit, llamay, url: str) -> None:
    code, out, err = llamay("pull", url)
    assert (code, out) == (0, "") and "tiny is installed (50.0 kB); `llamay run tiny` talks to it" in err
    assert "100%" in err
    code, _, err = llamay("pull", str(ENCODER))
    assert code == 0 and "`llamay embed bert-mean.f16` makes vectors with it" in err
    assert llamay("rm", "bert-mean.f16")[0] == 0
    code, out, err = llamay("list")
    header, row = out.splitlines()
    assert (code, err, header.split()) == (0, "", ["NAME", "ID", "SIZE", "MODIFIED"])
    (model,) = kit.store.survey().models
    assert row.split() == ["tiny:latest", model.id[:12], "50.0", "kB", "just", "now"]
    assert llamay("cp", "tiny", "mine:v1")[0] == 0
    assert llamay("ls")[1].count("\n") == 3
    code, out, err = llamay("rm", "tiny", "mine:v1")
    assert (
        (code, out) == (0, "") and "removed tiny:latest, 0 B freed" in err and "removed mine:v1, 50.0 kB freed" in err
    )
    assert llamay("list")[1] == "NAME    ID    SIZE    MODIFIED\n"
    assert kit.blobs() == set()


def test_a_second_pull_says_it_was_here(llamay, url: str) -> None:
    llamay("pull", url)
    assert "tiny was here already" in llamay("pull", url)[2]


def test_quiet_is_silent(llamay, url: str) -> None:
    assert llamay("pull", "-quiet", url) == (0, "", "")


def test_list_as_json(kit, llamay, url: str) -> None:
    llamay("pull", "--quiet", url)
    (row,) = json.loads(llamay("list", "--json")[1])
    (model,) = kit.store.survey().models
    assert row["name"] == "tiny:latest" and row["id"] == model.id and row["source"] == url
    assert row["size"] == 50_023 and row["modified"].endswith("+00:00")
    assert json.loads(llamay("ls", "-json")[1]) == [row]


def test_rm_refuses_unknown_names_before_it_removes_any(kit, llamay, url: str) -> None:
    llamay("pull", "-q", url)
    code, _, err = llamay("rm", "tiny", "tinny")
    assert code == 4 and "tinny is not installed; installed: tiny" in err
    assert len(kit.store.survey().models) == 1
    assert llamay("rm")[0] == 2


def test_rm_unused_removes_interrupted_downloads(kit, llamay, url: str) -> None:
    llamay("pull", "-q", url)
    kit.store.put_bytes(b"x" * 1000)
    assert "removed what no model uses, 1.0 kB freed" in llamay("rm", "-unused")[2]
    assert len(kit.store.survey().models) == 1


def test_a_broken_manifest_is_reported_beside_the_list(kit, llamay, url: str) -> None:
    llamay("pull", "-q", url)
    path = kit.store.manifests / "registry.ollama.ai" / "library" / "bad"
    path.mkdir()
    (path / "latest").write_text("{")
    code, out, err = llamay("list")
    assert code == 0 and out.count("\n") == 2 and "bad:latest is broken" in err
    assert llamay("rm", "bad")[0] == 0


def test_errors_have_their_exit_codes(kit, llamay, url: str) -> None:
    assert llamay("pull", f"{kit.server.url}/nothing.gguf")[0] == 5
    assert llamay("pull", "gopher://x")[0] == 2
    assert llamay("cp", "nothing", "x")[0] == 4
    code, _, err = llamay("pull", url, "-name", "../x")
    assert code == 2 and "no model name" in err


def test_a_name_can_be_given(kit, llamay, url: str) -> None:
    assert llamay("pull", "-name", "me/mine:v2", "-q", url)[0] == 0
    assert [str(model.name) for model in kit.store.survey().models] == ["me/mine:v2"]


def test_listing_imports_no_http() -> None:
    code = (
        "import sys; from llamay.cli import main; main(['list']); main(['rm', 'x']);"
        "print(sorted({'httpx', 'numpy', 'zipfile', 'wgpu'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "just now"), (70, "a minute ago"), (200, "3 minutes ago"), (8_000, "2 hours ago"), (90_000, "25 hours ago"),
     (200_000, "2 days ago"), (10**7, "16 weeks ago")],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text
