"""pip's configuration and the order of versions: what pip would do, this does."""

import itertools
import os
import random
import sys
from pathlib import Path

import pytest
from packaging.version import InvalidVersion, Version

from llamay.errors import StoreError
from llamay.store import pipconfig, versions
from llamay.store.pipconfig import PipConfig

DEFAULT = "https://pypi.org/simple"
posix = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folders are those of other systems")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The files pip reads on Linux, lowest first, all in a folder of the test."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(pipconfig, "_global_folders", lambda environ: [tmp_path / "xdg" / "pip", tmp_path / "etc"])
    return {
        "xdg": tmp_path / "xdg" / "pip" / "pip.conf",
        "etc": tmp_path / "etc" / "pip.conf",
        "legacy": tmp_path / "home" / ".pip" / "pip.conf",
        "user": tmp_path / "home" / ".config" / "pip" / "pip.conf",
        "site": tmp_path / "venv" / "pip.conf",
        "named": tmp_path / "named.conf",
    }


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), **more}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@posix
def test_later_files_override_earlier_ones(places: dict[str, Path], tmp_path: Path) -> None:
    for name in ("xdg", "etc", "legacy", "user", "site"):
        write(places[name], f"[global]\nindex-url = https://{name}/simple\n")
        assert pipconfig.load(DEFAULT, environ(tmp_path)).indexes == (f"https://{name}/simple",)


@posix
def test_pip_config_file_is_above_the_files_and_silences_the_users(places: dict[str, Path], tmp_path: Path) -> None:
    write(places["user"], "[global]\nindex-url = https://user/simple\nextra-index-url = https://user/extra\n")
    write(places["named"], "[global]\nindex-url = https://named/simple\n")
    named = environ(tmp_path, PIP_CONFIG_FILE=str(places["named"]))
    assert pipconfig.load(DEFAULT, named).indexes == ("https://named/simple",)
    missing = environ(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "missing"))
    assert pipconfig.load(DEFAULT, missing).indexes == ("https://user/simple", "https://user/extra")
    assert pipconfig.load(DEFAULT, environ(tmp_path, PIP_CONFIG_FILE=os.devnull)).indexes == (DEFAULT,)


@posix
def test_variables_override_files_and_sections_of_the_command_override_global(
    places: dict[str, Path], tmp_path: Path
) -> None:
    write(
        places["user"],
        "[global]\nindex-url = https://a/s\n[install]\nindex-url = https://b/s\n[download]\nno-index=1\n",
    )
    assert pipconfig.load(DEFAULT, environ(tmp_path)).indexes == ("https://b/s",)
    assert pipconfig.load(DEFAULT, environ(tmp_path, PIP_INDEX_URL="https://c/s")).indexes == ("https://c/s",)
    assert pipconfig.load(DEFAULT, environ(tmp_path, PIP_INDEX_URL="")).indexes == ("https://b/s",)


@posix
def test_lists_and_spellings(places: dict[str, Path], tmp_path: Path) -> None:
    text = "[global]\n--Extra_Index_Url =\n    https://one/s\n    https://two/s\nfind_links = /a /b\ntrusted-host = t\n"
    write(places["user"], text)
    found = pipconfig.load(DEFAULT, environ(tmp_path, PIP_DEFAULT_TIMEOUT="180", PIP_PROXY="proxy:3128"))
    assert found.indexes == (DEFAULT, "https://one/s", "https://two/s")
    assert (found.find_links, found.trusted_hosts, found.timeout) == (("/a", "/b"), ("t",), 180.0)
    assert found.proxy == "http://proxy:3128"
    assert pipconfig.load(DEFAULT, environ(tmp_path, PIP_NO_INDEX="yes")).indexes == ()


@posix
def test_certificates(tmp_path: Path) -> None:
    assert pipconfig.load(DEFAULT, environ(tmp_path, PIP_CONFIG_FILE=os.devnull)).certificates == ""
    found = environ(tmp_path, PIP_CONFIG_FILE=os.devnull, REQUESTS_CA_BUNDLE="/r", CURL_CA_BUNDLE="/c")
    assert pipconfig.load(DEFAULT, found).certificates == "/r"
    assert pipconfig.load(DEFAULT, {**found, "PIP_CERT": "/p"}).certificates == "/p"


@posix
@pytest.mark.parametrize("text", ["no section", "[global]\nx\n", "[a]\n[a]\n"])
def test_a_file_pip_would_refuse_is_named(places: dict[str, Path], tmp_path: Path, text: str) -> None:
    write(places["user"], text)
    with pytest.raises(StoreError, match=r"pip\.conf cannot be read"):
        pipconfig.load(DEFAULT, environ(tmp_path))


def config(*indexes: str, netrc: str = "") -> PipConfig:
    return PipConfig(indexes=indexes, find_links=(), netrc_file=netrc)


def basic(text: str) -> str:
    from base64 import b64encode

    return f"Basic {b64encode(text.encode()).decode()}"


def test_whose_credentials_go_where(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine h login n password p\nmachine other login o password q\n")
    both = config("https://a:1@h/one/simple", "https://b:2@h/two/simple", netrc=str(netrc))
    expected = {
        "https://u:w@h/x": basic("u:w"),
        "https://h/one/simple/llm/": basic("a:1"),
        "https://h/two/files/x.whl": basic("b:2"),
        "https://h:8443/one/simple/": basic("n:p"),
        "http://h/one/simple/": basic("n:p"),
        "https://other/x": basic("o:q"),
        "https://third/x": "",
    }
    assert {url: pipconfig.authorization(url, both) for url in expected} == expected
    token = config("https://token@h/simple", netrc=str(tmp_path / "none"))
    assert pipconfig.authorization("https://h/simple/x/", token) == basic("token:")
    assert pipconfig.authorization("https://h/simple/x/", config("https://me@h/simple", netrc=str(netrc))) == basic(
        "n:p"
    )


def test_credentials_are_never_shown() -> None:
    assert pipconfig.without_credentials("https://a:b@h:1/x?y#z") == "https://h:1/x?y#z"


def test_a_netrc_that_cannot_be_parsed_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("nonsense here\n")
    assert pipconfig.authorization("https://h/x", config(netrc=str(tmp_path / "netrc"))) == ""


def spellings() -> list[str]:
    random_ = random.Random(7)
    pieces = [
        "",
        "a1",
        ".b2",
        "-rc3",
        "c",
        "alpha",
        ".preview.4",
        ".post1",
        "-2",
        "_r3",
        ".dev0",
        "dev5",
        "+l.1",
        "+2.a",
    ]
    found = []
    for _ in range(600):
        release = ".".join(str(random_.choice([0, 1, 2, 10])) for _ in range(random_.randint(1, 4)))
        epoch = random_.choice(["", "", "", "v", "1!"])
        found.append(epoch + release + "".join(random_.sample(pieces, random_.randint(0, 3))))
    return [*found, "", "1..2", "x", "1.0-", "1.0+", "1.0.0a", "1" * 600, "١.٠"]


def test_versions_are_ordered_as_pep_440_orders_them() -> None:
    sound: list[str] = []
    for text in spellings():
        try:
            Version(text)
        except InvalidVersion:
            assert versions.key(text) is None, text
        else:
            if len(text) <= 512 and text.isascii():
                assert versions.key(text) is not None, text
                sound.append(text)
    assert len(sound) > 150
    ordered = sorted(sound, key=Version)
    for one, other in itertools.pairwise(ordered):
        mine, theirs = versions.key(one), versions.key(other)
        assert mine is not None and theirs is not None
        assert mine <= theirs and (mine == theirs) == (Version(one) == Version(other)), (one, other)
        assert versions.is_prerelease(one) == Version(one).is_prerelease, one


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.0", "1", True),
        ("1.0+cpu", "1.0", True),
        ("1.0", "1.0+cpu", False),
        ("1.0.post1", "1.0", False),
        ("x", "x", True),
    ],
)
def test_same_version(one: str, other: str, same: bool) -> None:
    assert versions.same(one, other) is same
