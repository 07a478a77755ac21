"""The store itself: names that answer, removal that keeps what others need, broken and hostile manifests."""

import json
import os
import re

import pytest

from llamay.errors import NotInstalled, StoreError, UsageError
from llamay.store import find, names, resolve
from llamay.store.resolve import kept_as

MODEL = "application/vnd.ollama.image.model"
TEMPLATE = "application/vnd.ollama.image.template"


@pytest.fixture
def tiny(kit):
    kit.server.registry("tiny", "latest", [(MODEL, kit.gguf(seed=1)), (TEMPLATE, b"shared")])
    return kit.pull("tiny").model


def path_of(kit, name: str):
    return names.parse(name).path(kit.store.manifests)


def test_a_file_that_exists_always_wins(kit, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(kit.store, "tiny") == kit.store.file(tiny)
    (tmp_path / "tiny").write_bytes(b"GGUF")
    assert resolve(kit.store, "tiny").samefile(tmp_path / "tiny")


def test_a_folder_of_that_name_does_not_win(kit, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve(kit.store, "tiny") == kit.store.file(tiny)


@pytest.mark.parametrize(
    "name", ["tiny", "tiny:latest", "TINY", "library/tiny", "registry.ollama.ai/library/tiny:latest"]
)
def test_a_model_answers_to_all_spellings_of_its_name(kit, tiny, name: str) -> None:
    assert find(kit.store, name) == tiny


def test_a_model_answers_to_its_source(kit) -> None:
    kit.server.index("llm-tiny", dict([kit.wheel("llm-tiny", "1", {"T.gguf": kit.gguf()})]))
    model = kit.pull("pypi:llm-tiny==1").model
    assert str(model.name) == "tiny:1"
    assert find(kit.store, "pypi:llm-tiny==1") == find(kit.store, "pypi:llm-tiny") == model


@pytest.mark.parametrize(
    "name", ["other", "other:7b", "hf.co/owner/repo:Q4_K_M", "pypi:llm-other", "https://example.com/m.gguf?a=1&b=2"]
)
def test_what_is_not_installed_is_refused_with_the_line_that_gets_it(kit, tiny, name: str) -> None:
    with pytest.raises(NotInstalled) as caught:
        resolve(kit.store, name)
    lines = str(caught.value).splitlines()
    quoted = f"'{name}'" if "&" in name else name
    assert lines[1] == f"  llamay pull {quoted}"
    assert "tiny" in lines[2]


def test_near_names_are_told(kit, tiny) -> None:
    with pytest.raises(NotInstalled, match="installed and near: tiny"):
        resolve(kit.store, "tinny")
    with pytest.raises(NotInstalled, match="installed and near: tiny"):
        resolve(kit.store, "tiny:8b")


@pytest.mark.parametrize("name", ["./gone.gguf", "/no/such/file", "~/gone", "~nobodyofthisname/gone", "gone.gguf"])
def test_a_path_that_does_not_exist_is_no_name(kit, name: str) -> None:
    with pytest.raises(NotInstalled, match="there is no file"):
        resolve(kit.store, name)


@pytest.mark.skipif(os.name == "nt", reason="a device of POSIX systems")
def test_a_device_is_no_model(kit) -> None:
    with pytest.raises(NotInstalled, match="/dev/null is not a regular file"):
        resolve(kit.store, "/dev/null")


@pytest.mark.parametrize("name", ["", "a b", "../../etc/nothing", "a/b/c/d", "tiny:", "x" * 200, "-tiny", "a\x1b[2J"])
def test_what_can_be_no_name_is_refused(kit, name: str) -> None:
    with pytest.raises((NotInstalled, UsageError)) as caught:
        resolve(kit.store, name)
    assert "llamay pull" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_a_copy_costs_no_blob_and_outlives_the_original(kit, tiny) -> None:
    before = kit.blobs()
    copy = kit.store.copy(tiny, names.parse("mine:v2"))
    assert kit.blobs() == before and copy.source == "tiny" and copy.manifest.layers == tiny.manifest.layers
    assert kit.store.remove(tiny.name) == 0
    assert kit.blobs() == before and kit.store.file(copy).exists()
    assert kit.store.remove(copy.name) == sum(layer.size for layer in copy.manifest.blobs())
    assert kit.blobs() == set()


def test_a_copy_of_what_was_removed_meanwhile_is_refused(kit, tiny) -> None:
    kit.store.remove(tiny.name)
    with pytest.raises(NotInstalled, match="nothing was copied"):
        kit.store.copy(tiny, names.parse("mine"))


def test_a_pull_does_not_replace_a_copy_that_has_its_name(kit, tiny) -> None:
    kit.server.registry("mine", "latest", [(MODEL, kit.gguf(seed=2))])
    kit.store.copy(tiny, names.parse("mine"))
    with pytest.raises(StoreError, match="mine:latest is installed already, from tiny"):
        kit.pull("mine")
    assert str(kit.pull("mine", name=names.parse("theirs")).model.source) == "mine"


def test_removal_keeps_what_another_model_uses(kit, tiny) -> None:
    kit.server.registry("other", "latest", [(MODEL, kit.gguf(seed=2)), (TEMPLATE, b"shared")])
    other = kit.pull("other").model
    assert kit.store.remove(tiny.name) == 50_000  # the config and the template are shared
    assert kit.store.text(other, "template") == "shared"
    with pytest.raises(NotInstalled, match="nothing was removed"):
        kit.store.remove(tiny.name)


def test_removal_leaves_no_empty_folders(kit, tiny) -> None:
    kit.store.remove(tiny.name)
    assert list(kit.store.manifests.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"{", b"\x00" * 100, b'{"schemaVersion":2,"config":{},"layers":[]}'])
def test_a_broken_manifest_breaks_nothing_else_and_can_be_removed(kit, tiny, data: bytes) -> None:
    path = path_of(kit, "broken:x")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    survey = kit.store.survey()
    assert [model.name for model in survey.models] == [tiny.name]
    ((name, reason),) = survey.broken
    assert str(name) == "broken:x" and "broken" in reason
    with pytest.raises(StoreError):
        resolve(kit.store, "broken:x")
    kit.store.remove(kept_as(kit.store, "broken:x"))
    assert kit.store.survey().broken == []


def test_blobs_a_broken_manifest_mentions_are_kept(kit, tiny) -> None:
    path = path_of(kit, "tiny")
    spoilt = path.read_bytes()[:-2]
    other = path_of(kit, "spoilt")
    other.parent.mkdir(parents=True)
    other.write_bytes(spoilt)
    kit.store.remove(tiny.name)
    assert kit.sha256(kit.gguf(seed=1)) in kit.blobs()
    kit.store.remove(names.parse("spoilt"))
    assert kit.blobs() == set()


def test_a_manifest_with_a_climbing_digest_reads_and_removes_nothing_outside(kit, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = path_of(kit, "evil")
    path.parent.mkdir(parents=True)
    layer = {"mediaType": MODEL, "digest": "sha256:../../../victim", "size": 8}
    path.write_text(json.dumps({"schemaVersion": 2, "config": layer, "layers": [layer]}))
    with pytest.raises(StoreError, match="not a digest"):
        resolve(kit.store, "evil")
    kit.store.remove(names.parse("evil"))
    assert victim.read_bytes() == b"precious"


def test_a_blob_that_is_a_link_out_of_the_store_is_refused(kit, tiny, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(kit.gguf(seed=1))
    blob = kit.store.file(tiny)
    blob.unlink()
    blob.symlink_to(victim)
    with pytest.raises(StoreError, match="leads out of the store"):
        kit.store.file(tiny)
    blob.unlink()
    kit.store.remove(tiny.name)
    assert victim.exists()


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_blob_is_named_and_a_pull_restores_it(kit, tiny, damage: str) -> None:
    blob = kit.store.file(tiny)
    os.truncate(blob, 100) if damage == "cut" else blob.unlink()
    with pytest.raises(StoreError, match=r"pull the model again") as caught:
        resolve(kit.store, "tiny")
    assert re.search("is missing|has 100 bytes, expected 50000", str(caught.value))
    assert kit.pull("tiny").fresh
    assert resolve(kit.store, "tiny").read_bytes() == kit.gguf(seed=1)


def test_a_manifest_whose_blobs_are_not_here_is_not_installed(kit, tiny) -> None:
    data = path_of(kit, "tiny").read_bytes()
    kit.store.file(tiny).unlink()
    with pytest.raises(StoreError, match="is missing"):
        kit.store.put_manifest(names.parse("second"), data)
    assert kit.store.installed(names.parse("second")) is None
    kit.pull("tiny")


def test_a_sweep_removes_leftovers_and_keeps_models(kit, tiny) -> None:
    kept = kit.blobs()
    stray = kit.store.put_bytes(b"nobody's")
    part = kit.store.partials / f"sha256-{'0' * 64}.part"
    part.write_bytes(bytes(1000))
    temporary = kit.store.blobs / ".sha256-x.99"
    temporary.write_bytes(b"x")
    os.utime(temporary, (0, 0))
    dead = kit.store.claims / "1-dead.claim"
    dead.write_text(stray.digest)  # of a process that has ended: nobody holds its lock
    assert kit.store.sweep() == 8 + 1000 + 1
    assert kit.blobs() == kept and not part.exists() and not temporary.exists() and not dead.exists()


def test_a_claimed_blob_survives_a_sweep(kit) -> None:
    with kit.store.claim() as claim:
        layer = kit.store.put_bytes(b"soon somebody's")
        kit.store.protect(claim, layer.digest)
        assert kit.store.sweep() == 0 and kit.store.has(layer)
    assert kit.store.sweep() == layer.size


def test_a_part_somebody_receives_survives_a_sweep(kit) -> None:
    from llamay.store.parts import Part

    kit.store.make(kit.store.partials)
    with Part(kit.store.partials, "from-x", addressed=False).open() as part:
        part.write(b"GGUF")
        assert kit.store.sweep() == 0 and part.path.exists()
    assert kit.store.sweep() == 4


def test_a_store_nobody_wrote_to_is_empty_and_not_made(kit) -> None:
    assert kit.store.survey().models == [] and not kit.store.root.exists()
    with pytest.raises(NotInstalled):
        resolve(kit.store, "tiny")
    assert not kit.store.root.exists()


def test_a_folder_that_cannot_be_made_says_which_variable_moves_it(tmp_path) -> None:
    from llamay.store import Store

    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="LLAMAY_MODELS"):
        Store(tmp_path / "file" / "models").put_bytes(b"x")


def test_a_folder_of_somebody_else_says_which_variable_names_another(kit, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched, pytest.raises(StoreError, match="manifests cannot be read: Permission denied; LLAMAY_MODELS"):
        patched.setattr(type(kit.store.root), "glob", refuses)
        kit.store.survey()
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="lock cannot be written: Permission denied; LLAMAY_MODELS"):
        patched.setattr(os, "open", refuses)
        kit.store.remove(tiny)


def test_names_that_differ_in_case_are_one_model(kit) -> None:
    for seed, tag in enumerate(("Q4_K_M", "q4_k_m")):
        kit.server.hub("owner/repo", {"M-Q4_K_M.gguf": kit.gguf(seed=seed)})
        kit.pull(f"hf.co/owner/repo:{tag}")
    (model,) = kit.store.survey().models
    assert str(model.name) == "hf.co/owner/repo:q4_k_m"
    assert kit.store.file(model).read_bytes() == kit.gguf(seed=1)
