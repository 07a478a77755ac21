"""The hub: listings, the choice among quantisations, split files, tokens."""

import json

import pytest

from llamay.errors import PullError


def repository(kit, *names: str) -> dict[str, bytes]:
    files = {name: kit.gguf(5_000, seed) for seed, name in enumerate(names)}
    kit.server.hub("owner/Repo-GGUF", files)
    return files


def test_the_usual_quantisation_is_chosen_when_none_is_named(kit) -> None:
    files = repository(kit, "M-Q2_K.gguf", "M-Q4_K_M.gguf", "M-Q8_0.gguf", "mmproj-M-Q4_K_M.gguf", "M.imatrix.gguf")
    pulled = kit.pull("hf.co/owner/Repo-GGUF")
    assert kit.read(pulled) == files["M-Q4_K_M.gguf"]
    assert str(pulled.model.name) == "hf.co/owner/Repo-GGUF:latest"


def test_a_named_quantisation_is_taken_whatever_its_case(kit) -> None:
    files = repository(kit, "M-Q2_K.gguf", "M-Q4_K_M.gguf")
    pulled = kit.pull("hf.co/owner/Repo-GGUF:q2_k")
    assert kit.read(pulled) == files["M-Q2_K.gguf"]
    assert str(pulled.model.name) == "hf.co/owner/Repo-GGUF:q2_k"


def test_a_missing_quantisation_lists_those_there_are(kit) -> None:
    repository(kit, "M-Q2_K.gguf", "M-Q4_K_M.gguf")
    with pytest.raises(PullError, match=r"holds no Q6_K; name one of these files:\n  Q2_K +M-Q2_K.gguf\n  Q4_K_M"):
        kit.pull("hf.co/owner/Repo-GGUF:Q6_K")


def test_all_parts_of_a_split_model_come_and_lie_beside_each_other(kit) -> None:
    names = [f"Q8_0/M-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    files = repository(kit, *names)
    pulled = kit.pull("hf.co/owner/Repo-GGUF:Q8_0")
    first = kit.store.file(pulled.model)
    assert first.name == "model-00001-of-00003.gguf"
    found = [(first.parent / f"model-0000{n}-of-00003.gguf").read_bytes() for n in (1, 2, 3)]
    assert found == [files[name] for name in names]
    (kit.store.root / "store.lock").unlink()
    assert kit.store.file(pulled.model) == first
    assert not (kit.store.root / "store.lock").exists()  # reading again changed nothing
    kit.store.remove(pulled.model.name)
    assert not first.exists() and kit.blobs() == set()


def test_a_split_model_with_a_missing_part_is_refused(kit) -> None:
    repository(kit, "M-Q8_0-00001-of-00003.gguf", "M-Q8_0-00003-of-00003.gguf")
    with pytest.raises(PullError, match="2 of 3 parts are there"):
        kit.pull("hf.co/owner/Repo-GGUF")


def test_two_models_of_one_quantisation_must_be_told_apart(kit) -> None:
    files = repository(kit, "A-Q4_K_M.gguf", "B-Q4_K_M.gguf")
    with pytest.raises(PullError, match="holds 2 models of that quantisation"):
        kit.pull("hf.co/owner/Repo-GGUF")
    pulled = kit.pull("hf:owner/Repo-GGUF/B-Q4_K_M.gguf")
    assert kit.read(pulled) == files["B-Q4_K_M.gguf"]
    assert str(pulled.model.name) == "hf.co/owner/Repo-GGUF:b-q4_k_m"


def test_a_revision_is_asked_for_and_files_come_from_its_commit(kit) -> None:
    files = {"M.gguf": kit.gguf()}
    kit.server.hub("owner/repo", files, revision="refs%2Fpr%2F3")
    pulled = kit.pull("hf:owner/repo/M.gguf@refs/pr/3")
    assert kit.read(pulled) == files["M.gguf"]
    assert kit.server.log[-1][0] == f"/owner/repo/resolve/{kit.sha256(b'owner/repo')[:40]}/M.gguf"


def test_the_token_goes_to_the_hub(kit, monkeypatch: pytest.MonkeyPatch) -> None:
    data = kit.gguf()
    for resource in kit.server.hub("owner/repo", {"M.gguf": data}).values():
        resource.login = "Bearer hf_secret"
    with pytest.raises(PullError, match="HF_TOKEN"):
        kit.pull("hf.co/owner/repo")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert kit.read(kit.pull("hf.co/owner/repo")) == data


def test_a_file_kept_without_a_digest_still_comes_whole(kit) -> None:
    data = kit.gguf()
    listing = {"sha": "main", "siblings": [{"rfilename": "M.gguf", "size": len(data)}]}
    kit.server.put("/api/models/owner/repo/revision/main?blobs=true", json.dumps(listing).encode())
    kit.server.put("/owner/repo/resolve/main/M.gguf", data, etag='"x"', cuts=[1_000])
    assert kit.read(kit.pull("hf.co/owner/repo")) == data


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"siblings":{}}', b'{"siblings":[1]}', b'{"siblings":[{}]}', b"[" * 99_999]
)
def test_a_listing_that_is_none_is_refused(kit, body: bytes) -> None:
    kit.server.put("/api/models/owner/repo/revision/main?blobs=true", body)
    with pytest.raises(PullError, match="no listing of a repository"):
        kit.pull("hf.co/owner/repo")


def test_names_that_climb_are_not_files(kit) -> None:
    listing = {"siblings": [{"rfilename": "../../../x.gguf"}, {"rfilename": "a\x1b[2J.gguf"}, {"rfilename": 5}]}
    kit.server.put("/api/models/owner/repo/revision/main?blobs=true", json.dumps(listing).encode())
    with pytest.raises(PullError, match="holds no GGUF file"):
        kit.pull("hf.co/owner/repo")
