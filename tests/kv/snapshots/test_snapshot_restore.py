"""What is restored is what was saved: pages, tokens, state, and the logits that follow, here and in another process."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from llamay.errors import ContextFileError, ContextMismatch, MalformedContext, OutOfMemory, UsageError
from llamay.kv.snapshots import Folder, Shape, restore
from llamay.tensor.batch import PAGE

CONFTEST = Path(__file__).with_name("conftest.py")
FULL, WINDOWED, STATES, BOTH = "llama-gqa.f16", "gemma3.f16", "mamba2-g2.f32", "granite-4-h.f16"

CHILD = """
import importlib.util, pickle, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("kit", sys.argv[1])
kit = importlib.util.module_from_spec(spec); spec.loader.exec_module(kit)
name, kv, root, tokens, after = pickle.loads(sys.stdin.buffer.read())
machine = kit.Machine(name, kv=kv)
context, _ = machine.cache.match([])
machine.run(context, tokens)
machine.save(kit.Folder(Path(root)), context, "made elsewhere", pending=after[:1])
sys.stdout.buffer.write(pickle.dumps(machine.run(context, after)))
"""


@pytest.mark.parametrize("kv", ["f32", "f16", "vq8", "q8"])
@pytest.mark.parametrize("name", [FULL, WINDOWED])
@pytest.mark.parametrize("length", [1, 16, 100, 208])
def test_pages_come_back_as_they_were(name, kv, length, machine, folder: Folder, tokens) -> None:
    here = machine(name, kv=kv)
    context = here.fill(tokens(length))
    saved = here.save(folder, context, state={"sampling": {"seed": 5}})
    there = machine(name, kv=kv)
    found = restore(folder, folder.find("a").manifest, there.cache, there.executor, there.origin)
    assert found.tokens == tuple(tokens(length)) and found.pending == () and found.state == {"sampling": {"seed": 5}}
    assert not found.recomputed and found.note == f"{length} tokens restored as pages"
    assert folder.find("a") == saved
    for ours, theirs in zip(here.pages(context), there.pages(found.context), strict=True):
        whole = len(ours) - (length % PAGE > 0)
        assert len(ours) and np.array_equal(ours[:whole], theirs[:whole])
    assert set(there.cache.contexts.values()) == {found.context}


@pytest.mark.parametrize(
    ("name", "kv"),
    [(FULL, "f32"), (WINDOWED, "q8"), (STATES, "f32"), (BOTH, "q8"), *(pytest.param(*pair, marks=pytest.mark.soak) for pair in ((FULL, "q8"), (WINDOWED, "f32")))],
)
def test_what_follows_has_the_same_bits_in_another_process(name, kv, machine, folder: Folder, tokens) -> None:
    """Also where the last page is partly filled, and where a window has passed pages."""
    before, after = tokens(75), tokens(40, seed=1)
    work = pickle.dumps((name, kv, str(folder.root), before, after))
    ran = subprocess.run([sys.executable, "-c", CHILD, CONFTEST], input=work, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    expected = pickle.loads(ran.stdout)
    here = machine(name, kv=kv)
    found = restore(folder, folder.find("made elsewhere").manifest, here.cache, here.executor, here.origin)
    assert found.pending == tuple(after[:1]) and found.context.position == len(before)
    assert np.array_equal(here.run(found.context, after), expected)


@pytest.mark.parametrize("name", [FULL, WINDOWED, STATES, "falcon-mamba.f16"])
def test_what_follows_has_the_same_bits_on_the_device(name, machine, folder: Folder, tokens, gpu) -> None:
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    def made():
        program = machine(name).executor.program
        windows = 24 if program.windowed else 0
        executor = WebGPUExecutor(gpu, program, 24, window_pages=windows)
        return executor, machine(name, pages=24, executor=executor)

    _, here = made()  # closing an executor would close the device, which other tests share
    second, there = made()
    context, _ = here.cache.match([])
    here.run(context, tokens(75))
    here.save(folder, context)
    found = restore(folder, folder.find("a").manifest, there.cache, second, there.origin)
    expected = here.run(context, tokens(40, seed=1))
    assert expected.std() > 0
    assert np.array_equal(there.run(found.context, tokens(40, seed=1)), expected)


@pytest.mark.parametrize("count", [0, 5, 16, 17, 64, 99, 100, 103])
def test_a_part_of_the_tokens(count: int, machine, folder: Folder, tokens) -> None:
    here = machine()
    context = here.fill(tokens(100))
    here.save(folder, context, pending=[1, 2, 3], state={"seed": 1})
    found = restore(folder, folder.find("a").manifest, here.cache, here.executor, here.origin, tokens=count)
    asked = (*tokens(100), 1, 2, 3)[:count]
    assert found.tokens == asked and found.context.position == min(count, 100)
    assert found.state == ({"seed": 1} if count == 103 else {})
    whole = found.context.position // PAGE
    assert np.array_equal(here.pages(found.context)[0][:whole], here.pages(context)[0][:whole])


@pytest.mark.parametrize("count", [-1, 101])
def test_a_part_that_is_none(count: int, machine, folder: Folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(100)))
    with pytest.raises(UsageError, match="has 100"):
        restore(folder, folder.find("a").manifest, here.cache, here.executor, here.origin, tokens=count)


def test_a_part_whose_window_had_gone(machine, folder: Folder, tokens) -> None:
    """A window of 16 keeps the last pages only: an early part is rebuilt from its tokens, or refused."""
    here = machine(WINDOWED)
    here.save(folder, here.fill(tokens(100)))
    manifest = folder.find("a").manifest
    assert manifest.runs[1].first == (100 - 16 + 1) // PAGE > 0
    late = restore(folder, manifest, here.cache, here.executor, here.origin, tokens=96)
    assert late.context.position == 96
    with pytest.raises(ContextMismatch, match=r"window of the first 50 tokens had gone.*recompute"):
        restore(folder, manifest, here.cache, here.executor, here.origin, tokens=50)
    none = restore(folder, manifest, here.cache, here.executor, here.origin, tokens=0)
    assert none.tokens == () and none.context.position == 0
    early = restore(folder, manifest, here.cache, here.executor, here.origin, tokens=50, recompute=True)
    assert early.recomputed and early.pending == tuple(tokens(50)) and early.context.position == 0


def test_a_state_is_a_page_too(machine, folder: Folder, tokens) -> None:
    """Nothing is saved of the pages that only count tokens; a part is there as long as its own page is."""
    here = machine(STATES)
    here.save(folder, here.fill(tokens(100)))
    manifest = folder.find("a").manifest
    assert [(run.first, len(run.pages)) for run in manifest.runs] == [(7, 0), (5, 2)]
    for count in (100, 99, 96):
        late = restore(folder, manifest, here.cache, here.executor, here.origin, tokens=count)
        assert (late.context.position, late.context.tables[1].first) == (count, 5)
    with pytest.raises(ContextMismatch, match="window of the first 95 tokens had gone"):
        restore(folder, manifest, here.cache, here.executor, here.origin, tokens=95)


def test_other_numerics_are_refused_or_recomputed(machine, folder: Folder, tokens) -> None:
    here = machine()
    context, _ = here.cache.match([])
    expected = here.run(context, tokens(40))
    here.save(folder, context)
    elsewhere = replace(here.origin, numerics="another order of sums")
    manifest = folder.find("a").manifest
    with pytest.raises(ContextMismatch, match=r"numpy-.*another order of sums.*recompute") as caught:
        restore(folder, manifest, here.cache, here.executor, elsewhere)
    assert here.executor.numerics in str(caught.value) and len(here.cache.contexts) == 1
    found = restore(folder, manifest, here.cache, here.executor, elsewhere, recompute=True)
    assert found.recomputed and found.note.startswith("40 tokens recomputed: ") and here.executor.numerics in found.note
    assert np.array_equal(here.run(found.context, list(found.pending)), expected)


@pytest.mark.parametrize("pages", [40, 10])  # 10: the tree has to give some up, so that all is checked first
@pytest.mark.parametrize("how", ["cut", "flipped", "gone", "folder"])
def test_a_damaged_page_is_told_and_computed_again(how: str, pages: int, machine, folder: Folder, tokens) -> None:
    here = machine(pages=pages)
    context, _ = here.cache.match([])
    expected = here.run(context, tokens(100))
    manifest = here.save(folder, context).manifest
    here.cache.drop(context)
    path = folder.page(manifest.runs[0].pages[3])
    data = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "gone":
        path.write_bytes(data[:-1] if how == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ContextFileError, match=r"; -recompute rebuilds it from its 100 tokens") as caught:
        restore(folder, manifest, here.cache, here.executor, here.origin)
    assert path.name in str(caught.value) and not here.cache.contexts
    found = restore(folder, manifest, here.cache, here.executor, here.origin, recompute=True)
    assert found.recomputed and found.note.startswith("100 tokens recomputed: ") and path.name in found.note
    assert np.array_equal(here.run(found.context, list(found.pending)), expected)
    assert set(here.cache.contexts.values()) == {found.context}


def test_damaged_tokens_are_recomputed_by_nobody(machine, folder: Folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(40)))
    (path,) = folder.saved.iterdir()
    data = bytearray(path.read_bytes())
    data[data.index(b'"tokens":[') + 10] ^= 1
    path.write_bytes(data)
    with pytest.raises(MalformedContext, match="checksum"):
        folder.find("a")


def test_recomputing_uses_what_the_tree_knows(machine, folder: Folder, tokens) -> None:
    here = machine()
    context = here.fill(tokens(40))
    here.save(folder, context)
    here.cache.publish(context)
    elsewhere = replace(here.origin, numerics="other")
    found = restore(folder, folder.find("a").manifest, here.cache, here.executor, elsewhere, recompute=True)
    assert found.context.position == 32 and found.pending == tuple(tokens(40)[32:])
    assert "32 of them were in the prefix cache" in found.note


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": "sha256:" + "6" * 64, "model": "other"}, ["5" * 64, "6" * 64, "'llama-gqa.f16'", "'other'"]),
        ({"kv": "q8"}, ["'f32'", "'q8'", "-kv"]),
        ({"vocabulary": 5000}, ["320", "5000"]),
    ],
)
def test_other_weights_and_formats_are_refused_by_name(change, words, recompute, machine, folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(40)))
    before = here.everything()
    with pytest.raises(ContextMismatch) as caught:
        restore(
            folder,
            folder.find("a").manifest,
            here.cache,
            here.executor,
            replace(here.origin, **change),
            recompute=recompute,
        )
    assert all(word in str(caught.value) for word in words), caught.value
    assert here.everything() == before


def test_other_page_sizes_are_no_pages_of_ours(machine, folder: Folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(40)))
    other = replace(here.origin, groups=(Shape(4),))
    with pytest.raises(ContextMismatch, match="4 bytes"):
        restore(folder, folder.find("a").manifest, here.cache, here.executor, other)


def test_no_room_changes_nothing(machine, folder: Folder, tokens) -> None:
    here = machine(pages=10)
    here.save(folder, here.fill(tokens(100)))
    before = here.everything()
    with pytest.raises(OutOfMemory):
        restore(folder, folder.find("a").manifest, here.cache, here.executor, here.origin)
    assert here.everything() == before and here.cache.stats().groups[0].free == 3


def test_a_damaged_page_does_not_cost_the_prefix_tree_its_pages(machine, folder: Folder, tokens) -> None:
    """Where the tree must give up pages for a restore, everything is checked first."""
    here = machine(pages=10)
    saved = here.save(folder, here.fill(tokens(100)))
    (context,) = here.cache.contexts.values()
    here.cache.publish(context)
    here.cache.drop(context)
    path = folder.page(saved.manifest.runs[0].pages[-1])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MalformedContext):
        restore(folder, saved.manifest, here.cache, here.executor, here.origin)
    assert here.cache.known(tokens(100)) == 96
    assert not here.cache.contexts


def test_a_failing_device_leaves_no_page_taken(machine, folder: Folder, tokens, monkeypatch) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(100)))

    def fail(*_: object) -> None:
        raise OutOfMemory("the device is lost")

    monkeypatch.setattr(here.executor, "write_pages", fail)
    with pytest.raises(OutOfMemory):
        restore(folder, folder.find("a").manifest, here.cache, here.executor, here.origin)
    assert len(here.cache.contexts) == 1


@pytest.mark.parametrize("name", [FULL, WINDOWED])
def test_a_context_of_no_tokens_and_one_that_was_rewound(name: str, machine, folder: Folder, tokens) -> None:
    here = machine(name)
    empty, _ = here.cache.match([])
    here.save(folder, empty, pending=[5])
    found = restore(folder, folder.find("a").manifest, here.cache, here.executor, here.origin)
    assert found.context.position == 0 and found.pending == (5,)
    context, _ = here.cache.match([])
    here.run(context, tokens(50))
    assert list(here.cache.rewind(context, 49)) == []
    here.save(folder, context, "b")
    again = restore(folder, folder.find("b").manifest, here.cache, here.executor, here.origin)
    assert again.tokens == tuple(tokens(50)[:49])
    assert np.array_equal(here.run(again.context, tokens(9, seed=1)), here.run(context, tokens(9, seed=1)))
