"""The folder: names, lists, replacing, removing, sweeping, carrying from one folder to another, and all that at once."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import ContextFileError, MalformedContext, NoSuchContext, UsageError
from llamay.kv.snapshots import Folder, Label, export, import_file, parting, record, restore, verify
from llamay.kv.snapshots.labels import check_name, file_name
from llamay.kv.snapshots.manifest import Manifest, Origin, Run, Shape, checked, decode, encode

NAMES = ["a", "notes on the sea", "../../etc/passwd", "C:\\nul", "日本語", "work/2 (draft)", ".", "..", "~", "x" * 128]
UNFIT = ["", " a", "a ", "-rf", "a\nb", "\x1b[31m", "a\u202eb", "\ud800", "x" * 129]


def names_in(folder: Folder) -> list[str]:
    survey = folder.survey()
    assert survey.broken == []
    return [saved.name for saved in survey.contexts]


def files_in(folder: Folder) -> set[str]:
    """Everything but the lock."""
    return {str(path.relative_to(folder.root)) for path in folder.root.rglob("*") if path.is_file()} - {"store.lock"}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_any_text_and_never_a_path(name: str, machine, folder: Folder, tokens, tmp_path: Path) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(20)), name)
    assert folder.find(name).name == name and names_in(folder) == [name]
    for path in tmp_path.rglob("*"):
        assert path == folder.root or folder.root in path.parents
    (found,) = folder.saved.iterdir()
    assert found.name == file_name(name) and found.name.isalnum()
    folder.remove(name)
    assert files_in(folder) == set()


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_name_is_refused(name: str, machine, folder: Folder, tokens) -> None:
    for use in (check_name, folder.find, folder.remove):
        with pytest.raises(UsageError, match="name"):
            use(name)
    if name:
        with pytest.raises(UsageError):
            Label(name)
        with pytest.raises(UsageError):
            Label("a", tags=(name,))
    assert not folder.root.exists()


def test_a_name_is_the_same_however_it_was_composed(machine, folder: Folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(20)), "caf\u0065\u0301")
    assert folder.find("caf\u00e9").name == "caf\u00e9"


def test_names_that_nobody_gave_differ() -> None:
    names = {Label().name for _ in range(50)}
    assert len(names) > 40 and all(check_name(name) == name for name in names)


def test_what_is_saved_is_listed_newest_first_with_its_tags(machine, folder: Folder, tokens) -> None:
    here = machine()
    assert folder.survey().contexts == [] and not folder.root.exists()
    for number in range(4):
        here.save(folder, here.fill(tokens(20, seed=number)), f"n{number}", tags=("b", "a", "b"), parent="n0", text="t")
    assert names_in(folder) == ["n3", "n2", "n1", "n0"]
    found = folder.find("n2").manifest
    assert (found.tags, found.parent, found.text) == (("a", "b"), "n0", "t")
    assert abs(found.created - time.time()) < 60


def test_a_folder_of_somebody_else_says_which_variable_names_another(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(folder.saved), "glob", refuses)
    with pytest.raises(ContextFileError, match="saved cannot be read: Permission denied; LLAMAY_CONTEXTS"):
        folder.survey()


def test_a_name_nobody_saved_is_told_with_those_near(machine, folder: Folder, tokens) -> None:
    with pytest.raises(NoSuchContext, match="none is"):
        folder.find("other")
    here = machine()
    here.save(folder, here.fill(tokens(20)), "kitchen")
    for use in (folder.find, folder.remove):
        with pytest.raises(NoSuchContext, match="there are 'kitchen'"):
            use("kitchn")
    assert names_in(folder) == ["kitchen"]


def test_a_name_that_is_taken_is_replaced_or_refused(machine, folder: Folder, tokens) -> None:
    here = machine()
    first = here.fill(tokens(64))
    here.save(folder, first)
    old = files_in(folder)
    with pytest.raises(UsageError, match="already"):
        here.save(folder, here.fill(tokens(40, seed=1)), replace=False)
    assert files_in(folder) == old and folder.find("a").manifest.tokens == tuple(tokens(64))
    second = here.fill(tokens(30, seed=2), first)
    here.save(folder, second)
    assert folder.find("a").manifest.tokens == (*tokens(64), *tokens(30, seed=2))
    pages = folder.find("a").manifest.digests()
    assert files_in(folder) == {f"saved/{file_name('a')}", *(f"pages/{digest}" for digest in pages)}
    here.save(folder, here.fill(tokens(16, seed=3)))
    assert len(files_in(folder)) == 2


def test_removing_takes_the_pages_nobody_else_needs(machine, folder: Folder, tokens) -> None:
    here = machine()
    first = here.fill(tokens(96))
    here.save(folder, first, "one")
    here.save(folder, here.fill(tokens(40, seed=1), first), "two")
    assert len(list(folder.pages.iterdir())) == 9
    freed = folder.remove("one")
    assert names_in(folder) == ["two"] and len(list(folder.pages.iterdir())) == 9
    verify(folder, folder.find("two").manifest)
    assert 0 < freed < here.executor.page_bytes(0)
    assert folder.remove("two") > 8 * here.executor.page_bytes(0)
    assert files_in(folder) == set()
    with pytest.raises(NoSuchContext):
        folder.remove("two")


def test_a_broken_context_is_told_and_costs_no_other_its_pages(machine, folder: Folder, tokens) -> None:
    here = machine()
    first = here.fill(tokens(96))
    here.save(folder, first, "one")
    here.save(folder, here.fill(tokens(40, seed=1), first), "two")
    path = folder.saved / file_name("one")
    path.write_bytes(path.read_bytes()[:-1])
    survey = folder.survey()
    assert [saved.name for saved in survey.contexts] == ["two"]
    assert [found for found, _ in survey.broken] == [path] and "one" not in survey.broken[0][1]
    assert folder.sweep() == 0
    verify(folder, folder.find("two").manifest)
    with pytest.raises(MalformedContext):
        folder.find("one")
    folder.remove("one")
    assert names_in(folder) == ["two"]


def test_a_manifest_under_another_name_is_none(machine, folder: Folder, tokens) -> None:
    here = machine()
    here.save(folder, here.fill(tokens(20)), "one")
    (folder.saved / file_name("one")).rename(folder.saved / file_name("two"))
    with pytest.raises(MalformedContext, match="one"):
        folder.find("two")


def test_a_removal_during_a_save_takes_nothing_from_it(machine, folder: Folder, tokens) -> None:
    """The pages a save shares are removed, in place, before it is done."""
    here = machine()
    context = here.fill(tokens(96))
    here.save(folder, context, "one")
    with record(folder, context, here.executor, here.origin) as recording:
        recording.writer.digests()
        folder.remove("one")
        folder.sweep()
        assert files_in(folder) and not any(folder.pages.iterdir())
        recording.commit(Label("two"))
    verify(folder, folder.find("two").manifest)
    assert not any(folder.aside.iterdir())


def test_a_page_that_was_cut_in_place_is_written_anew(machine, folder: Folder, tokens) -> None:
    here = machine()
    context = here.fill(tokens(96))
    one = here.save(folder, context, "one").manifest
    cut = folder.page(one.digests()[2])
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(MalformedContext):
        verify(folder, one)
    here.save(folder, context, "two")
    verify(folder, one)


def test_what_is_not_committed_leaves_nothing(machine, folder: Folder, tokens) -> None:
    here = machine()
    with record(folder, here.fill(tokens(96)), here.executor, here.origin) as recording:
        assert len(recording.writer.digests()[0]) == 6
    with pytest.raises(UsageError, match="holds tuple"):
        here.save(folder, here.fill(tokens(96)), state={"pair": {"a": [1]}, "deep": (1, 2)})
    assert files_in(folder) == set()


def test_what_a_dead_process_left_is_removed(folder: Folder, machine, tokens) -> None:
    left = folder.aside / "123-dead"
    left.mkdir(parents=True)
    (left / "page").write_bytes(bytes(1000))
    (folder.aside / "123-dead.lock").touch()
    assert folder.sweep() == 1000
    assert not any(folder.aside.iterdir())


def test_from_one_machine_to_another(machine, folder: Folder, tokens, tmp_path: Path) -> None:
    here = machine("gemma3.f16")
    context = here.fill(tokens(100))
    saved = here.save(folder, context, "mine", tags=("t",), text="words", state={"sampling": {"seed": 2**63}})
    file = tmp_path / "carried"
    assert export(folder, "mine", file) == file.stat().st_size
    other = Folder(tmp_path / "elsewhere")
    assert import_file(other, file).manifest == saved.manifest
    assert import_file(other, file, "ours").name == "ours"
    with pytest.raises(UsageError, match="already"):
        import_file(other, file, "ours")
    assert names_in(other) == ["mine", "ours"]
    there = machine("gemma3.f16")
    found = restore(other, other.find("ours").manifest, there.cache, there.executor, there.origin)
    for ours, theirs in zip(here.pages(context), there.pages(found.context), strict=True):
        assert (ours[:-1] == theirs[:-1]).all()
    assert {path.name for path in other.pages.iterdir()} == {path.name for path in folder.pages.iterdir()}


def test_an_export_that_fails_leaves_the_old_file(machine, folder: Folder, tokens, tmp_path: Path) -> None:
    here = machine()
    saved = here.save(folder, here.fill(tokens(100)))
    file = tmp_path / "carried"
    file.write_text("old")
    folder.page(saved.manifest.digests()[3]).unlink()
    with pytest.raises(MalformedContext):
        export(folder, "a", file)
    assert file.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["carried", "contexts"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_an_export_replaces_files_only(machine, folder: Folder, tokens, tmp_path: Path) -> None:
    """A pipe or a device of that name stays, whoever may write to its folder."""
    here = machine()
    here.save(folder, here.fill(tokens(20)))
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("folder", "pipe", "link"):
        with pytest.raises(ContextFileError, match=rf"{name} is not a regular file"):
            export(folder, "a", tmp_path / name)
    for name, why in (("nowhere/x", "No such file"), ("file/x", "Not a directory")):
        with pytest.raises(ContextFileError, match=rf"{name} cannot be written: {why}[^']*$"):
            export(folder, "a", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == before and (tmp_path / "pipe").is_fifo()
    long = tmp_path / ("\N{WATER WAVE}" * 60)  # 240 bytes
    assert export(folder, "a", long) == long.stat().st_size


def test_a_folder_that_cannot_be_made(tmp_path: Path, machine, tokens) -> None:
    (tmp_path / "file").touch()
    here = machine()
    with pytest.raises(ContextFileError, match="LLAMAY_CONTEXTS"):
        here.save(Folder(tmp_path / "file"), here.fill(tokens(20)))


def test_a_full_disk_leaves_what_there_was(machine, folder: Folder, tokens, monkeypatch) -> None:
    here = machine()
    context = here.fill(tokens(64))
    here.save(folder, context)
    before = files_in(folder)
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ContextFileError, match="No space left"):
        here.save(folder, here.fill(tokens(30, seed=1), context))
    assert files_in(folder) == before


def test_saves_and_removals_at_once(machine, folder: Folder, tokens) -> None:
    """Threads save contexts that share most of their pages, while others remove them and sweep."""
    here = machine(pages=128)
    stem = here.fill(tokens(160))
    contexts = [here.fill(tokens(20, seed=number), stem) for number in range(4)]
    guard = threading.Lock()  # the executor is one thread's
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(6):
                with guard:
                    recording = record(folder, contexts[number], here.executor, here.origin)
                with recording:
                    recording.commit(Label(f"{number}"))
                verify(folder, folder.find(f"{number}").manifest)
                if turn % 2 == 0:
                    folder.remove(f"{number}")
                folder.sweep()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(names_in(folder)) == ["0", "1", "2", "3"]
    used = {digest for saved in folder.survey().contexts for digest in saved.manifest.digests()}
    assert {path.name for path in folder.pages.iterdir()} == used and not any(folder.aside.iterdir())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def document(**changes) -> Manifest:
    origin = Origin("m", "sha256:" + "0" * 64, "numpy", "f32", 100, (Shape(8),))
    fields = {"name": "a", "tags": (), "created": 1.5, "parent": "", "origin": origin, "tokens": (1, 2), "held": 2}
    return Manifest(**{**fields, "runs": (Run(0, ("0" * 64,)),), "text": "", "state": {}, **changes})


@given(st.dictionaries(st.sampled_from(["sampling", "constraint"]), JSON), st.text(st.characters(exclude_categories=["Cs"])))
def test_state_and_text_come_back_as_they_were(state: dict, text: str) -> None:
    made = document(state=state, text=text)
    assert decode(encode(made), "it") == made


@pytest.mark.parametrize(
    "changes",
    [
        {"state": {"x": float("nan")}},
        {"state": {"x": float("inf")}},
        {"state": {"x": 2**64}},
        {"state": {"x": b"bytes"}},
        {"state": {"x": {7}}},
        {"state": {1: "x"}},
        {"state": {"x": "y" * (4 << 20)}},
        {"text": "\ud800"},
        {"tokens": (1, 100)},
        {"held": 3},
        {"runs": (Run(0, ("0" * 63,)),)},
        {"runs": (Run(1, ()),)},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_what_could_not_be_read_back_is_not_written(changes: dict) -> None:
    with pytest.raises(UsageError):
        encode(document(**changes))


def test_where_two_contexts_part(machine, folder: Folder, tokens) -> None:
    here = machine()
    stem = here.fill(tokens(64))
    left = here.save(folder, here.fill([1, 2, 3], stem), "l", text="one line\nthe sea is blue").manifest
    right = here.save(folder, here.fill([1, 9], stem), "r", text="one line\nthe sea is deep\nand old").manifest
    found = parting(left, right)
    assert (found.common, found.tokens, found.rest) == (65, (67, 66), ((2, 3), (9,)))
    assert found.texts == ("the sea is blue", "the sea is deep\nand old")
    assert (found.shared, found.pages, found.same) == (4, (5, 5), False)
    assert parting(left, left).same and parting(left, left).common == 67
    assert not parting(left, document()).same and parting(document(), checked(document())).same
