"""Plain files: a pull survives every way a server can be bad, and installs nothing it should not."""

import os

import pytest

from llamay.errors import PullError, StoreError

LIMIT = 6  # tries of a download that does not move


def test_a_file_is_installed_under_its_own_digest(kit) -> None:
    data = kit.gguf()
    kit.server.put("/models/Tiny-7B.Q4_0.gguf", data)
    pulled = kit.pull(f"{kit.server.url}/models/Tiny-7B.Q4_0.gguf")
    assert pulled.fresh and str(pulled.model.name) == "tiny-7b.q4_0:latest"
    assert kit.read(pulled) == data
    assert kit.store.file(pulled.model).name == f"sha256-{kit.sha256(data)}"
    assert kit.parts() == []


def test_a_cut_goes_on_from_the_byte_it_stopped_at(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, etag='"one"', cuts=[20_000, 0, 10_000])
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data
    asked = [headers.get("range") for headers in kit.server.asked("/m.gguf")]
    assert asked == [None, "bytes=20000-", "bytes=20000-", "bytes=30000-"]
    assert all(headers.get("if-range") == '"one"' for headers in kit.server.asked("/m.gguf")[1:])
    assert len(kit.waits) == 3


def test_a_given_up_download_resumes_in_the_next_pull(kit) -> None:
    data = kit.gguf()
    resource = kit.server.put("/m.gguf", data, etag='"one"', cuts=[30_000] + [0] * (LIMIT - 1))
    with pytest.raises(PullError, match="gave up after 6 tries"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert [part.stat().st_size for part in kit.parts()] == [30_000]
    assert len(kit.waits) == LIMIT - 1 and kit.waits == sorted(kit.waits)
    assert not resource.cuts
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data
    assert kit.server.asked("/m.gguf")[-1]["range"] == "bytes=30000-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(kit) -> None:
    old, new = kit.gguf(seed=1), kit.gguf(40_000, seed=2)
    kit.server.put("/m.gguf", old, etag='"old"', cuts=[30_000] + [0] * (LIMIT - 1))
    with pytest.raises(PullError):
        kit.pull(f"{kit.server.url}/m.gguf")
    kit.server.put("/m.gguf", new, etag='"new"')
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == new


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_without_a_strong_validator_nothing_is_glued_together(kit, etag: str) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, etag=etag, cuts=[30_000])
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data
    assert [headers.get("range") for headers in kit.server.asked("/m.gguf")] == [None, None]


def test_a_server_that_ignores_range(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, etag='"one"', ranges=False, cuts=[30_000])
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data


def test_a_partial_answer_from_another_place_is_refused(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(), etag='"one"', cuts=[30_000], partial_shift=5)
    with pytest.raises(PullError, match="answers with bytes from 30005 where 30000 was asked"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.blobs() == set()


def test_an_unchanged_file_is_not_sent_again(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, etag='"one"')
    url = f"{kit.server.url}/m.gguf"
    first, served = kit.pull(url), kit.server.served
    second = kit.pull(url)
    assert (first.fresh, second.fresh, kit.server.served) == (True, False, served)
    kit.store.file(first.model).unlink()
    assert kit.read(kit.pull(url)) == data  # a lost blob is fetched, whatever the server remembers


def test_an_updated_file_replaces_the_old_blob(kit) -> None:
    url = f"{kit.server.url}/m.gguf"
    kit.server.put("/m.gguf", kit.gguf(seed=1), etag='"one"')
    kit.pull(url)
    new = kit.gguf(seed=2)
    kit.server.put("/m.gguf", new, etag='"two"')
    pulled = kit.pull(url)
    assert pulled.fresh and kit.read(pulled) == new
    assert kit.blobs() == {layer.digest.removeprefix("sha256:") for layer in pulled.model.manifest.blobs()}


def test_429_waits_as_long_as_asked(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, statuses=[(429, {"Retry-After": "7"}), (503, {"Retry-After": "3"})])
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data
    assert kit.waits == [7.0, 3.0]
    assert any("429" in line for line in kit.said)


def test_a_wait_beyond_patience_is_an_error_that_says_so(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(), statuses=[(429, {"Retry-After": "86400"})])
    with pytest.raises(PullError, match="asks to wait 86400 s"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.waits == []


def test_retries_are_bounded(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(), statuses=[(500, {})] * 100)
    with pytest.raises(PullError, match="answered 500; gave up after 6 tries"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert len(kit.server.log) == LIMIT


@pytest.mark.parametrize(
    ("status", "words"), [(404, "check the spelling"), (403, "HF_TOKEN"), (401, "credentials"), (418, "expected 200")]
)
def test_final_statuses_are_not_retried(kit, status: int, words: str) -> None:
    kit.server.put("/m.gguf", kit.gguf(), statuses=[(status, {})])
    with pytest.raises(PullError, match=words):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert len(kit.server.log) == 1


def test_a_web_page_is_no_model(kit) -> None:
    page = b"<!DOCTYPE html><html><title>Sign in</title></html>" * 100
    kit.server.put("/m.gguf", page, headers={"Content-Type": "text/html"})
    with pytest.raises(PullError, match="sends no GGUF file but text/html beginning with '<!DOCTYPE html>"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.blobs() == set() and kit.parts() == []


@pytest.mark.parametrize("body", [b"", b"GG"])
def test_a_body_shorter_than_its_magic_is_no_model(kit, body: bytes) -> None:
    kit.server.put("/m.gguf", body)
    with pytest.raises(PullError, match="no GGUF file"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.blobs() == set()


def test_an_endless_body_is_bounded_by_the_free_disk(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.server.put("/m.gguf", endless=kit.gguf(1 << 20))
    monkeypatch.setattr(type(kit.store), "free", lambda self: (200 << 20) - sum(p.stat().st_size for p in kit.parts()))
    with pytest.raises(StoreError, match="Free some space"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert sum(part.stat().st_size for part in kit.parts()) <= 200 << 20
    assert kit.blobs() == set()


def test_what_does_not_fit_is_not_begun(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.server.put("/m.gguf", kit.gguf(1 << 20))
    monkeypatch.setattr(type(kit.store), "free", lambda self: 64 << 20)
    with pytest.raises(StoreError, match=r"needs 1\.0 MB more and 67\.1 MB to spare; 67\.1 MB are free"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.parts() == []


def test_a_body_shorter_than_announced_is_not_installed(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(30_000), announce=50_000)
    with pytest.raises(PullError, match="gave up"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert kit.blobs() == set()


def test_a_length_nobody_tells_is_refused_since_a_cut_would_not_show(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(), lengthless=True)
    with pytest.raises(PullError, match="tells no length"):
        kit.pull(f"{kit.server.url}/m.gguf")


def test_an_encoded_answer_is_refused(kit) -> None:
    kit.server.put("/m.gguf", kit.gguf(), headers={"Content-Encoding": "gzip"})
    with pytest.raises(PullError, match="encodes its answer"):
        kit.pull(f"{kit.server.url}/m.gguf")


def test_a_redirect_on_the_same_host_is_followed(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", redirect="/elsewhere/real.gguf?x=1")
    kit.server.put("/elsewhere/real.gguf?x=1", data)
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data


@pytest.mark.parametrize(
    "target", ["https://example.com/m.gguf", "ftp://127.0.0.1/m.gguf", "file:///etc/passwd", "data:,GGUF"]
)
def test_a_redirect_to_another_scheme_is_refused(kit, target: str) -> None:
    kit.server.put("/m.gguf", redirect=target)
    with pytest.raises(PullError, match="redirects to another scheme"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert len(kit.server.log) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "127.1"])
def test_a_redirect_to_another_server_of_this_machine_is_refused(kit, other_server, host: str) -> None:
    other_server.put("/secret", kit.gguf())
    kit.server.put("/m.gguf", redirect=f"http://{host}:{other_server.server_port}/secret")
    with pytest.raises(PullError, match=r"is refused: it is reached by|cannot be resolved"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert other_server.log == [] and kit.blobs() == set()


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "10.0.0.1", "192.168.1.1", "[::1]", "[fe80::1]", "[::ffff:10.0.0.1]"]
)
def test_a_redirect_to_a_private_address_is_refused(kit, host: str) -> None:
    kit.server.put("/m.gguf", redirect=f"http://{host}/latest/meta-data")
    with pytest.raises(PullError, match="private address"):
        kit.pull(f"{kit.server.url}/m.gguf")


def test_a_redirect_with_credentials_is_refused(kit) -> None:
    kit.server.put("/m.gguf", redirect=f"http://user:secret@127.0.0.1:{kit.server.server_port}/x")
    with pytest.raises(PullError, match="credentials"):
        kit.pull(f"{kit.server.url}/m.gguf")


def test_redirects_in_a_circle_end(kit) -> None:
    kit.server.put("/m.gguf", redirect="/m.gguf")
    with pytest.raises(PullError, match="redirects more than 5 times"):
        kit.pull(f"{kit.server.url}/m.gguf")
    assert len(kit.server.log) == 6


def test_credentials_of_the_url_are_sent_and_not_kept(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, login="Basic bWU6c2VjcmV0")
    pulled = kit.pull(f"http://me:secret@127.0.0.1:{kit.server.server_port}/m.gguf")
    assert kit.read(pulled) == data
    stored = b"".join(path.read_bytes() for path in kit.store.root.rglob("*") if path.is_file())
    assert b"secret" not in stored


def test_plain_http_is_for_this_machine_only(kit) -> None:
    network = kit.network(resolver=lambda host, port: ["93.184.216.34"])
    with pytest.raises(PullError, match="plain http is fetched from this machine only"):
        kit.pull("http://models.example/m.gguf", network=network)


def test_insecure_allows_http_to_the_named_host_and_connects_to_the_judged_address(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data)
    network = kit.network(insecure=True, resolver=lambda host, port: ["127.0.0.1"])
    pulled = kit.pull(f"http://models.example:{kit.server.server_port}/m.gguf", network=network)
    assert kit.read(pulled) == data
    assert kit.server.log[0][1]["host"] == f"models.example:{kit.server.server_port}"


def test_an_address_that_does_not_answer_gives_way_to_the_next(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data)
    network = kit.network(insecure=True, resolver=lambda host, port: ["127.0.0.2", "127.0.0.1"])
    assert kit.read(kit.pull(f"http://two.example:{kit.server.server_port}/m.gguf", network=network)) == data


def test_a_part_left_by_another_boot_is_trusted_only_as_far_as_it_was_synced(kit) -> None:
    data = kit.gguf()
    kit.server.put("/m.gguf", data, etag='"one"', cuts=[30_000] + [0] * (LIMIT - 1))
    with pytest.raises(PullError):
        kit.pull(f"{kit.server.url}/m.gguf")
    (part,) = kit.parts()
    state = part.with_suffix(".json")
    state.write_text('{"validator": "\\"one\\"", "synced": 10000, "boot": "another"}')
    with open(part, "r+b") as file:  # what a loss of power may leave
        file.seek(15_000)
        file.write(bytes(15_000))
    assert kit.read(kit.pull(f"{kit.server.url}/m.gguf")) == data
    assert kit.server.asked("/m.gguf")[-1]["range"] == "bytes=10000-"


def test_the_name_can_be_chosen_and_is_not_taken_from_another_source(kit) -> None:
    kit.server.put("/a/m.gguf", kit.gguf(seed=1))
    kit.server.put("/b/m.gguf", kit.gguf(seed=2))
    kit.pull(f"{kit.server.url}/a/m.gguf")
    with pytest.raises(StoreError, match="installed already, from http"):
        kit.pull(f"{kit.server.url}/b/m.gguf")
    from llamay.store import names

    pulled = kit.pull(f"{kit.server.url}/b/m.gguf", name=names.parse("second:b"))
    assert str(pulled.model.name) == "second:b"
    assert len(kit.store.survey().models) == 2


def test_a_local_file_is_copied_and_its_original_left_alone(kit, tmp_path) -> None:
    data = kit.gguf()
    path = tmp_path / "My Model.gguf"
    path.write_bytes(data)
    pulled = kit.pull(str(path))
    assert str(pulled.model.name) == "my-model:latest" and kit.read(pulled) == data
    path.write_bytes(b"changed")
    assert kit.read(pulled) == data


def test_a_local_file_can_be_linked(kit, tmp_path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(kit.gguf())
    assert os.path.samefile(kit.store.file(kit.pull(str(path), link=True).model), path)


def test_a_local_file_that_is_no_model_is_refused(kit, tmp_path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(PullError, match="no GGUF file"):
        kit.pull(str(path))
    assert kit.parts() == []


def test_bytes_are_synced_before_names_and_the_manifest_comes_last(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    replace = os.replace

    def folder(path: str | os.PathLike[str]) -> str:
        return os.path.relpath(path, kit.store.root).split(os.sep)[0]

    def synced(handle: int) -> None:
        number = os.fstat(handle).st_ino
        events.extend(f"sync {folder(path)}" for path in kit.store.root.rglob("*") if path.stat().st_ino == number)

    def named(source: str, target: str) -> None:
        events.append(f"name {folder(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    kit.server.put("/m.gguf", kit.gguf(), etag='"one"')
    kit.pull(f"{kit.server.url}/m.gguf")
    kept = [event for event in events if event != "name partials"]
    model = kept.index("name blobs")
    assert "sync partials" in kept[:model] and kept[model + 1] == "sync blobs"
    assert kept[-3:] == ["sync manifests", "name manifests", "sync manifests"]
