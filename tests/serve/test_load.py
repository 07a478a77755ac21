"""Loading a tiny model: its context, its pages, its notes, its refusals."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from llamay import gguf
from llamay.errors import NoAdapter, OutOfMemory, Unsupported, UsageError
from llamay.gguf import Typed, ValueType
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.webgpu import adapters

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
GEMMA = TINY.with_name("gemma3.f16.gguf")
NUMPY = Settings(backend="numpy")


def test_the_context_is_the_model_s_unless_asked_for() -> None:
    with load.load(TINY, NUMPY) as loaded:
        assert loaded.context == loaded.config.context == 256
        assert loaded.executor.pages == 16
        with pytest.raises(UsageError, match="300 tokens was asked for; this model was made for 256: ask for 256 or less"):
            load.context_of(300, loaded.config)
        assert load.context_of(0, replace(loaded.config, context=1 << 20)) == load.DEFAULT_CONTEXT
        assert load.context_of(9000, replace(loaded.config, context=1 << 20)) == 9000
    with load.load(TINY, Settings(backend="numpy", context=33)) as loaded:
        assert (loaded.context, loaded.executor.pages) == (33, 3)


@pytest.mark.parametrize(("context", "ending"), [(256, ".f32"), (257, ".f32.long"), (0, ".f32.long")])
def test_the_context_chooses_among_factors_of_rope(context: int, ending: str, tmp_path: Path) -> None:
    """What a longer context computes has other bits from its first position on, so its numerics have another id."""
    path = tmp_path / "longer.gguf"
    with gguf.open(TINY.with_name("phi3-longrope.f16.gguf")) as file:
        tensors = [(name, tensor.type, tensor.shape, tensor.data) for name, tensor in file.tensors.items()]
        gguf.write(path, {**file.metadata, "phi3.context_length": 1024}, tensors)
    with load.load(path, Settings(backend="numpy", context=context)) as loaded:
        assert loaded.executor.numerics.endswith(ending)


def test_the_fallback_is_announced_with_what_would_bring_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "adapters", tuple)
    with load.load(TINY, Settings()) as loaded:
        (note,) = loaded.notes
        assert note.startswith("computing with NumPy: ") and adapters.advice() in note
        assert loaded.device == "numpy"
    with pytest.raises(NoAdapter):
        load.load(TINY, Settings(backend="webgpu"))


def test_what_cannot_be_run_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    gguf.write(path, {"general.architecture": Typed(ValueType.STRING, "odd")}, [])
    with pytest.raises(Unsupported, match="'odd' is not supported"):
        load.load(path, NUMPY)
    path.unlink()
    with pytest.raises(UsageError, match="made for 256"):
        load.load(TINY, Settings(backend="numpy", context=257))


@pytest.mark.parametrize("kv", ["f32", "f16", "vq8", "q8"])
def test_keys_and_values_are_kept_as_asked(kv: str) -> None:
    with load.load(TINY, Settings(backend="numpy", kv=kv)) as loaded:
        assert loaded.executor.kv == kv and loaded.describe().endswith(f"kv {kv}")


def test_it_may_be_closed_twice() -> None:
    loaded = load.load(TINY, NUMPY)
    loaded.close()
    loaded.close()


def test_many_requests_share_what_they_are_allowed() -> None:
    with load.load(TINY, Settings(backend="numpy", kv_mem="1M"), shared=True) as loaded:
        assert 0.9 * (1 << 20) < loaded.pools.bytes <= 1 << 20
        assert loaded.executor.pages == loaded.cache.groups[0].pages.count == loaded.pools.pages > 2 * 16
        assert "1 MiB of pages" in loaded.describe()
    with pytest.raises(OutOfMemory, match="kv_mem allows 104,857"):
        load.load(TINY, Settings(backend="numpy", kv_mem="0.1M"), shared=True)
    with load.load(GEMMA, NUMPY, shared=True) as loaded:
        assert loaded.cache.groups[1].span == 16 and loaded.executor.window_pages == loaded.pools.window_pages > 0
    with load.load(GEMMA, NUMPY) as loaded:
        assert len(loaded.cache.groups) == 1 and loaded.executor.window_pages == 0


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    with load.load(TINY, Settings(backend="numpy", cache=tmp_path)) as loaded:
        assert loaded.digest() == f"sha256:{hashlib.sha256(TINY.read_bytes()).hexdigest()}"
