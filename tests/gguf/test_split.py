"""Models in several files: opened together from the first, refused by name when a part is wrong."""

from contextlib import closing
from pathlib import Path

import pytest

from llamay import gguf
from llamay.errors import MalformedFile, ModelFileError
from llamay.gguf import Typed, ValueType
from llamay.gguf.parse import open_part
from llamay.quant import TensorType

TENSORS = [(f"t{index}", TensorType.F32, (1,), bytes([index]) * 4) for index in range(5)]


@pytest.fixture
def parts(tmp_path):
    """Three files of two, two and one tensor."""
    return gguf.write_split(tmp_path / "model", {"general.name": "split"}, TENSORS, 2)


def rewrite(path: Path, **changed: int) -> None:
    """Write one part anew with other split keys."""
    types = {"no": ValueType.UINT16, "count": ValueType.UINT16, "tensors": ValueType.INT32}
    keys = {"no": "split.no", "count": "split.count", "tensors": "split.tensors.count"}
    with closing(open_part(str(path))) as part:
        metadata = {key: Typed(part.types[key], value) for key, value in part.values.items()}
        metadata |= {keys[name]: Typed(types[name], value) for name, value in changed.items()}
        gguf.write(path, metadata, [(t.name, t.type, t.shape, t.data) for t in part.tensors.values()])


def test_all_parts_open_from_the_first(parts):
    assert [path.name for path in parts] == [f"model-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    with gguf.open(parts[0]) as file:
        assert file.paths == tuple(map(str, parts))
        assert file.path == str(parts[0])
        assert [tensor.data.tobytes() for tensor in file.tensors.values()] == [tensor[3] for tensor in TENSORS]
        assert [Path(tensor.path) for tensor in file.tensors.values()] == [parts[i] for i in (0, 0, 1, 1, 2)]
        assert file.size == sum(path.stat().st_size for path in parts)
        assert file.metadata["general.name"] == "split"


@pytest.mark.parametrize("index", [1, 2])
def test_another_part_names_the_first(parts, index):
    with pytest.raises(
        ModelFileError, match=rf"is part {index + 1} of .* in 3: open the first part, .*model-00001-of-00003.gguf"
    ):
        gguf.open(parts[index])


def test_missing_parts_are_named(parts):
    parts[1].unlink()
    parts[2].unlink()
    expected = r"2 of 3 parts are missing: .*model-00002-of-00003.gguf, .*model-00003-of-00003.gguf"
    with pytest.raises(ModelFileError, match=expected):
        gguf.open(parts[0])


def test_a_renamed_first_part_says_what_it_needs(parts):
    renamed = parts[0].rename(parts[0].with_name("renamed.gguf"))
    with pytest.raises(ModelFileError, match=r"to find the others name it \.\.\.-00001-of-00003\.gguf"):
        gguf.open(renamed)
    other = parts[1].rename(parts[1].with_name("other.gguf"))
    with pytest.raises(ModelFileError, match=r"part 2 of a model split in 3: open the first part$"):
        gguf.open(other)


def test_a_part_of_another_model_is_refused(parts):
    parts[2].replace(parts[1])
    with pytest.raises(ModelFileError, match="1 of 3 parts are missing"):
        gguf.open(parts[0])


def test_parts_must_count_alike(parts):
    rewrite(parts[1], count=4)
    with pytest.raises(MalformedFile, match=r"model-00002-of-00003.gguf says it is part 2 of 4, 2 of 3 expected"):
        gguf.open(parts[0])
    rewrite(parts[1], count=3, no=2)
    with pytest.raises(MalformedFile, match="says it is part 3 of 3, 2 of 3 expected"):
        gguf.open(parts[0])


def test_the_total_must_fit(parts):
    rewrite(parts[0], tensors=6)
    with pytest.raises(MalformedFile, match="announces 6 tensors in its parts, but they hold 5"):
        gguf.open(parts[0])


def test_a_tensor_in_two_parts_is_refused(parts, tmp_path):
    again = [*TENSORS[:2], ("t0", TensorType.F32, (1,), bytes(4))]
    paths = gguf.write_split(tmp_path / "again", {}, again, 2)
    with pytest.raises(MalformedFile, match=r"'t0' is both in .*again-00001.* and in .*again-00002"):
        gguf.open(paths[0])


def test_one_part_is_a_whole_model(tmp_path):
    paths = gguf.write_split(tmp_path / "one", {"k": 1}, TENSORS, 9)
    assert [path.name for path in paths] == ["one-00001-of-00001.gguf"]
    with gguf.open(paths[0]) as file:
        assert len(file.tensors) == 5


def test_a_broken_part_is_refused_with_its_name(parts):
    parts[2].write_bytes(parts[2].read_bytes()[:40])
    with pytest.raises(MalformedFile, match=r"model-00003-of-00003\.gguf: "):
        gguf.open(parts[0])
