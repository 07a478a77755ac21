"""What a saved context costs on disk, and that no byte of other contexts is in it."""

import numpy as np
import pytest

from llamay.kv.snapshots import Folder, restore, verify
from llamay.kv.snapshots import page as pages
from llamay.tensor.batch import PAGE

FULL, WINDOWED = "llama-gqa.f16", "gemma3.f16"


def bytes_of(folder: Folder) -> int:
    return sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())


def test_a_context_that_shares_most_of_its_tokens_adds_little(machine, folder: Folder, tokens) -> None:
    here = machine(pages=200)
    first = here.fill(tokens(1840))
    here.save(folder, here.fill(tokens(208, seed=1), first), "one")
    alone = bytes_of(folder)
    assert alone > 128 * here.executor.page_bytes(0)
    second = here.save(folder, here.fill(tokens(208, seed=2), first), "two")
    assert second.manifest.tokens[:1840] == tuple(tokens(1840)) and len(second.manifest.tokens) == 2048
    assert 0 < bytes_of(folder) - alone < 0.15 * alone
    assert len(list(folder.pages.iterdir())) == 115 + 13 + 13
    for name in ("one", "two"):
        verify(folder, folder.find(name).manifest)


def test_the_same_again_adds_a_manifest_only(machine, folder: Folder, tokens) -> None:
    here = machine()
    context = here.fill(tokens(100))
    here.save(folder, context, "one")
    before = bytes_of(folder)
    again = here.save(folder, context, "two")
    assert bytes_of(folder) - before == again.description_bytes


@pytest.mark.parametrize("kv", ["f32", "f16", "vq8", "q8"])
@pytest.mark.parametrize("name", [FULL, WINDOWED])
def test_the_unfilled_end_of_a_page_is_nobody_elses(name, kv, machine, folder: Folder, tokens) -> None:
    """Two machines with other noise in their pages save the same bytes of the same computed tokens."""
    saved = []
    for noise in range(2):
        here = machine(name, kv=kv)
        for group in here.cache.groups:
            size = here.executor.page_bytes(group.number)
            full = np.full((group.pages.count, size), 17 + noise, np.uint8)
            here.executor.write_pages(group.number, list(range(group.pages.count)), full)
        context, _ = here.cache.match([])
        here.run(context, tokens(37))
        saved.append(here.save(folder, context, f"noise {noise}").manifest)
    assert saved[0].runs == saved[1].runs
    found = restore(folder, saved[0], here.cache, here.executor, here.origin)
    for data in here.pages(found.context):
        ends = [slot_bytes(here, data[-1], 37 % PAGE - 1), slot_bytes(here, data[-1], PAGE - 1)]
        assert ends[0].any() and not ends[1].any()


def slot_bytes(here, page: np.ndarray, slot: int) -> np.ndarray:
    """Bytes of a page that change when its position `slot` does, found by asking the executor."""
    from llamay.tensor.tail import clear_tail

    group = 0 if len(page) == here.executor.page_bytes(0) else 1
    marked = np.full_like(page, 1)
    clear_tail(here.executor, group, marked, slot + 1)
    beyond = marked == 0
    marked[:] = 1
    if slot:
        clear_tail(here.executor, group, marked, slot)
    else:
        marked[:] = 0
    return page[(marked == 0) & ~beyond]


def test_pages_that_compress_are_compressed_and_noise_is_left_raw(machine, folder: Folder, tokens) -> None:
    here = machine()
    size = here.executor.page_bytes(0)
    noisy, even = here.fill(tokens(320)), here.fill(tokens(320, seed=1))
    steps = np.repeat(np.arange(20 * size // 256, dtype=np.uint32), 64)
    here.executor.write_pages(0, even.tables[0].array.tolist(), steps.view(np.uint8).reshape(20, size))
    sizes = []
    for name, context in (("noisy", noisy), ("even", even)):
        manifest = here.save(folder, context, name).manifest
        sizes.append(folder.stored_bytes(manifest.digests()))
        verify(folder, manifest)
    assert sizes[0] == 20 * (size + pages.HEAD.size)
    assert sizes[1] < 20 * size / 4
