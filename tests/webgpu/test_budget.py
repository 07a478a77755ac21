"""A load that does not fit is refused by numbers before anything is allocated; what is estimated is what is taken."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import OutOfMemory
from llamay.model import bind
from llamay.tensor import room
from llamay.tensor.batch import Batch
from llamay.tensor.cache import OFFERED, cache_format
from llamay.tensor.room import Room
from llamay.tensor.webgpu import budget
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.budget import Have
from llamay.tensor.webgpu.executor import WebGPUExecutor
from llamay.tensor.webgpu.state import StateLayout

MIB = 1 << 20


@pytest.fixture
def program(named_case):
    file = gguf.open(named_case("llama-gqa.f16").path)
    return bind(file, describe(file)).program


def needed(gpu, program, pages: int, kv: str = "f32", rows: int = 512) -> budget.Need:
    return budget.need(gpu, program, rows, pages, StateLayout(rows, max(4096, 4 * pages)), 0, cache_format(kv))


@pytest.mark.parametrize("kv", OFFERED)
def test_the_estimate_is_what_is_taken(gpu, program, kv: str) -> None:
    before = gpu.allocated
    executor = WebGPUExecutor(gpu, program, 8, kv=kv)
    executor.forward(Batch.single(np.arange(5, dtype=np.int32), 0, np.arange(8, dtype=np.int32)))
    taken = gpu.allocated - before
    need = needed(gpu, program, 8, kv)
    assert need.weights == executor.memory.weight_bytes and need.kv == executor.memory.kv_bytes
    assert abs(taken - (need.total - budget.OVERHEAD)) < MIB  # norms, dispatch numbers, staging
    assert need.total - budget.OVERHEAD < taken + MIB


def test_counting_takes_nothing(gpu, program) -> None:
    before = gpu.allocated, len(gpu._owned)
    need = needed(gpu, program, 100_000)
    assert need.kv > 100 * MIB
    assert (gpu.allocated, len(gpu._owned)) == before


def test_a_refusal_gives_both_numbers_and_a_context_that_fits(gpu, program) -> None:
    pages = 20_000
    need = needed(gpu, program, pages)
    free = need.total - need.kv // 2
    before = gpu.allocated
    with pytest.raises(OutOfMemory) as refusal:
        WebGPUExecutor(gpu, program, pages, allowed=free)
    words = str(refusal.value)
    assert gpu.allocated == before
    assert f"needs {need.total / MIB:,.0f} MiB" in words and f"{free / MIB:,.0f} MiB" in words
    for part in ("weights", "keys and values", "work"):
        assert part in words
    context = int(re.search(r"\(-c (\d+)\)", words).group(1))
    assert 0 < context < 16 * pages
    fits, too_much = needed(gpu, program, context // 16), needed(gpu, program, 2 * context // 16)
    assert fits.total <= free < too_much.total


def test_a_model_that_fits_with_no_context_is_refused_with_other_advice(gpu, program) -> None:
    with pytest.raises(OutOfMemory, match="smaller quantisation"):
        WebGPUExecutor(gpu, program, 8, allowed=MIB)


def test_keys_that_cannot_be_bound_are_refused(gpu, program) -> None:
    need = needed(gpu, program, 100)
    small = replace(need, largest_kv=gpu.limits["max-storage-buffer-binding-size"] + 1)
    with pytest.raises(OutOfMemory, match="binds at most"):
        budget.check(gpu, small, None, 1600)
    budget.check(gpu, need, None, 1600)


def test_the_context_that_is_advised_can_be_bound(gpu, program) -> None:
    need = needed(gpu, program, 100)
    limit = gpu.limits["max-storage-buffer-binding-size"]
    most = need.pages_within(1 << 50, limit)
    assert needed(gpu, program, most).largest_kv <= limit < needed(gpu, program, most + 1).largest_kv


def adapter(type: str) -> Adapter:
    return Adapter("made up", type, "Vulkan", "driver", (), {}, SimpleNamespace(info={"vendor_id": 0x1002, "device_id": 0x73BF}))


def test_what_a_device_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "machine", lambda: Room(total=1000, free=900))
    monkeypatch.setattr(budget, "CARDS", tmp_path)
    assert budget.have(adapter("CPU")).bytes == 900
    assert budget.have(adapter("IntegratedGPU")).bytes == 750
    assert budget.have(adapter("DiscreteGPU")) is None
    assert budget.have(adapter("DiscreteGPU"), 77).bytes == 77
    for card, device, used in (("card0", "0x1111", 5), ("card1", "0x73bf", 400)):
        folder = tmp_path / card / "device"
        folder.mkdir(parents=True)
        for name, text in {
            "vendor": "0x1002",
            "device": device,
            "mem_info_vram_total": "16000",
            "mem_info_vram_used": str(used),
        }.items():
            (folder / name).write_text(text + "\n")
    assert budget.have(adapter("DiscreteGPU")) == Have(15600, "of the card's memory are free")


def test_an_unknown_device_refuses_nothing_by_size(gpu, program) -> None:
    budget.check(gpu, needed(gpu, program, 20_000), None, 320_000)
