"""Ollama-style registries: manifests, layers, tokens, and manifests that lie."""

import json

import pytest

from llamay.errors import DigestMismatch, PullError, StoreError, Unsupported

MODEL = "application/vnd.ollama.image.model"
TEMPLATE = "application/vnd.ollama.image.template"
PARAMS = "application/vnd.ollama.image.params"


def test_all_layers_are_kept_and_the_manifest_verbatim(kit) -> None:
    data = kit.gguf()
    layers = [(MODEL, data), (TEMPLATE, b"{{ .Prompt }}"), (PARAMS, b'{"temperature":0.2}')]
    kit.server.registry("tiny", "1b", layers)
    pulled = kit.pull("tiny:1b")
    assert kit.read(pulled) == data
    assert kit.store.text(pulled.model, "template") == "{{ .Prompt }}"
    assert kit.store.text(pulled.model, "params") == '{"temperature":0.2}'
    assert kit.store.text(pulled.model, "system") is None
    sent = kit.server.resources["/v2/library/tiny/manifests/1b"].body
    path = kit.store.manifests / "registry.ollama.ai" / "library" / "tiny" / "1b"
    assert path.read_bytes() == sent and pulled.model.id == kit.sha256(sent)


def test_a_second_pull_transfers_nothing(kit) -> None:
    kit.server.registry("tiny", "latest", [(MODEL, kit.gguf())])
    assert kit.pull("tiny").fresh
    kit.server.log.clear()
    assert not kit.pull("tiny").fresh
    assert [path for path, _ in kit.server.log] == ["/v2/library/tiny/manifests/latest"]


def test_a_cut_blob_resumes_without_a_validator_since_the_digest_judges(kit) -> None:
    data = kit.gguf()
    kit.server.registry("tiny", "latest", [(MODEL, data)])[MODEL].cuts = [12_345]
    assert kit.read(kit.pull("tiny")) == data
    last = kit.server.asked(f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}")[-1]
    assert last["range"] == "bytes=12345-" and "if-range" not in last


def test_a_wrong_digest_installs_nothing(kit) -> None:
    data = kit.gguf(seed=1)
    kit.server.registry("tiny", "latest", [(MODEL, data)])[MODEL].body = kit.gguf(seed=2)
    with pytest.raises(DigestMismatch, match=f"announced was sha256:{kit.sha256(data)}"):
        kit.pull("tiny")
    assert kit.sha256(data) not in kit.blobs() and kit.sha256(kit.gguf(seed=2)) not in kit.blobs()
    assert kit.parts() == [] and kit.store.survey().models == []


def test_a_spoilt_part_is_fetched_anew_once(kit) -> None:
    data = kit.gguf()
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data)])
    blobs[MODEL].cuts = [20_000] + [0] * 5
    with pytest.raises(PullError):
        kit.pull("tiny")
    (part,) = kit.parts()
    part.write_bytes(bytes(20_000))
    assert kit.read(kit.pull("tiny")) == data
    assert any("fetching it anew" in line for line in kit.said)


def test_a_blob_of_another_length_than_the_manifest_says_is_refused(kit) -> None:
    data = kit.gguf()
    kit.server.registry("tiny", "latest", [(MODEL, data)])[MODEL].body = data + b"more"
    with pytest.raises(PullError, match="announces 50004 bytes where 50000 are expected"):
        kit.pull("tiny")


def test_a_layer_without_end_stops_at_the_announced_size(kit) -> None:
    data = kit.gguf()
    kit.server.registry("tiny", "latest", [(MODEL, data)])[MODEL].endless = data
    with pytest.raises(PullError, match="sends more than the 50000 bytes it announced"):
        kit.pull("tiny")
    assert kit.parts() == []


def test_a_web_page_instead_of_a_layer_is_refused_at_once(kit) -> None:
    data = kit.gguf()
    blob = kit.server.registry("tiny", "latest", [(MODEL, data)])[MODEL]
    blob.body, blob.headers = b"<html>" + data[6:], {"Content-Type": "text/html"}
    with pytest.raises(PullError, match="no GGUF file but text/html"):
        kit.pull("tiny")


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../tmp/x",
        "sha256:" + "A" * 64,
        "sha256:" + "a" * 63,
        "sha256-" + "a" * 64 + "/../../x",
        "md5:" + "a" * 32,
        "",
        7,
        None,
    ],
)
def test_a_manifest_with_a_digest_that_is_none_is_refused(kit, digest: object) -> None:
    layer = {"mediaType": MODEL, "digest": digest, "size": 10}
    config = {"mediaType": "c", "digest": "sha256:" + "0" * 64, "size": 1}
    body = json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode()
    kit.server.put("/v2/library/evil/manifests/latest", body)
    with pytest.raises(StoreError, match="not a digest"):
        kit.pull("evil")
    assert len(kit.server.log) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[" * 100_000,
        b"{}",
        b'{"schemaVersion":2}',
        b'{"schemaVersion":2,"config":null,"layers":[]}',
        b'{"schemaVersion":2,"config":{"mediaType":"c","digest":"sha256:%s","size":-1},"layers":[]}' % (b"0" * 64),
        b'{"schemaVersion":2,"config":{"mediaType":"c","digest":"sha256:%s","size":1e99},"layers":[]}' % (b"0" * 64),
        b'{"schemaVersion":2,"config":{"mediaType":5,"digest":"sha256:%s","size":1},"layers":[]}' % (b"0" * 64),
        b'{"schemaVersion":2,"layers":[%s]}' % b",".join([b"1"] * 2000),
        b"\xff\xfe",
    ],
)
def test_a_manifest_that_is_none_is_refused(kit, body: bytes) -> None:
    kit.server.put("/v2/library/odd/manifests/latest", body)
    with pytest.raises(StoreError, match=r"not a manifest|a layer('s| is)"):
        kit.pull("odd")


def test_a_huge_manifest_is_refused(kit) -> None:
    kit.server.put("/v2/library/huge/manifests/latest", endless=b" " * 65536)
    with pytest.raises(PullError, match="more than 4194304 bytes"):
        kit.pull("huge")
    assert kit.server.served < 16 << 20


def test_a_model_without_a_gguf_layer_is_named_unsupported(kit) -> None:
    kit.server.registry("tensors", "latest", [("application/vnd.ollama.image.tensor", b"x")])
    with pytest.raises(Unsupported, match="holds no GGUF file but tensor"):
        kit.pull("tensors")


def test_an_unknown_model_says_so(kit) -> None:
    with pytest.raises(PullError, match="404 for /v2/library/nope/manifests/latest: there is no such model"):
        kit.pull("nope")


def test_a_registry_that_wants_an_anonymous_token(kit) -> None:
    data = kit.gguf()
    kit.server.registry("tiny", "latest", [(MODEL, data)])
    challenge = f'Bearer realm="{kit.server.url}/token",service="models",scope="repository:library/tiny:pull"'
    for resource in kit.server.resources.values():
        resource.login, resource.challenge = "Bearer abc.def", challenge
    kit.server.put("/token?service=models&scope=repository%3Alibrary%2Ftiny%3Apull", b'{"token":"abc.def"}')
    assert kit.read(kit.pull("tiny")) == data


def test_a_token_realm_may_not_lead_to_another_server_of_this_machine(kit, other_server) -> None:
    blob = kit.server.registry("tiny", "latest", [(MODEL, kit.gguf())])
    assert blob
    manifest = kit.server.resources["/v2/library/tiny/manifests/latest"]
    manifest.login, manifest.challenge = "Bearer x", f'Bearer realm="{other_server.url}/token"'
    with pytest.raises(PullError, match="private address"):
        kit.pull("tiny")
    assert other_server.log == []


def test_a_token_realm_that_is_no_url_is_refused(kit) -> None:
    kit.server.registry("tiny", "latest", [(MODEL, kit.gguf())])
    manifest = kit.server.resources["/v2/library/tiny/manifests/latest"]
    manifest.login, manifest.challenge = "Bearer x", 'Bearer realm="https://[::1"'
    with pytest.raises(PullError, match="no URL"):
        kit.pull("tiny")


def test_a_pull_of_the_same_name_removes_what_the_new_manifest_dropped(kit) -> None:
    old, new, template = kit.gguf(seed=1), kit.gguf(seed=2), b"{{ .Prompt }}"
    kit.server.registry("tiny", "latest", [(MODEL, old), (TEMPLATE, template)])
    kit.pull("tiny")
    kit.server.registry("tiny", "latest", [(MODEL, new), (TEMPLATE, template)])
    assert kit.read(kit.pull("tiny")) == new
    assert kit.sha256(old) not in kit.blobs() and kit.sha256(template) in kit.blobs()
