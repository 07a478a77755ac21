"""State spaces: what the keys of their files come to, and what is refused by name."""

from types import SimpleNamespace

import pytest

from llamay import gguf
from llamay.arch import StateSpace, describe
from llamay.errors import MalformedFile


def described(named_case, name, **changes):
    """The case's Config with keys changed: `a__b` is a.b, None removes it."""
    with gguf.open(named_case(f"{name}.f32").path) as file:
        prefix = file.metadata["general.architecture"]
        metadata = {**file.metadata, **{f"{prefix}.{key.replace('__', '.')}": value for key, value in changes.items()}}
        kept = {key: value for key, value in metadata.items() if value is not None}
        return describe(SimpleNamespace(metadata=kept, tensors=file.tensors))


def test_the_fixtures(named_case):
    one, two = described(named_case, "mamba"), described(named_case, "mamba2-g2")
    assert one.space == StateSpace(inner=128, states=16, kernel=4, heads=128, groups=1, rank=4)
    assert (one.space.convolved, one.space.entered, one.space.kept) == (128, 256, 128 + 128 + 128)
    assert two.space == StateSpace(inner=128, states=16, kernel=4, heads=8, groups=2, rank=0)
    assert (two.space.convolved, two.space.entered, two.space.shared, two.space.kept) == (192, 328, 32, 192 + 128 + 8)
    for found in (one, two):
        assert (found.heads, found.kv_heads, found.head_dim, found.feed_forward) == ((0, 0), (0, 0), 0, (0, 0))
        assert set(found.rotary) == {None} and found.unread_keys == ()
    assert one.tied and not two.tied


def test_keys_that_some_writers_leave_out(named_case):
    changes = dict.fromkeys(("attention__head_count", "feed_forward_length", "ssm__dt_b_c_rms"))
    assert described(named_case, "mamba", **changes).space == described(named_case, "mamba").space
    assert described(named_case, "mamba2", ssm__group_count=None).space.groups == 1


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("mamba", {"ssm__inner_size": None}, "no key mamba.ssm.inner_size"),
        ("mamba", {"ssm__conv_kernel": 1}, "expected 2 to 16"),
        ("mamba", {"ssm__conv_kernel": 17}, "expected 2 to 16"),
        ("mamba", {"ssm__state_size": 0}, "expected 1 to 4096"),
        ("mamba2", {"ssm__time_step_rank": 5}, "128 channels in 5 heads and 1 groups; expected as many in each"),
        ("mamba2-g2", {"ssm__group_count": 3}, "128 channels in 8 heads and 3 groups"),
    ],
)
def test_sizes_that_cannot_be_are_named(name, changes, words, named_case):
    with pytest.raises(MalformedFile, match=words):
        described(named_case, name, **changes)


def test_norms_of_steps_b_and_c(named_case):
    """A key of FalconMamba, whose files are mamba's by name; mamba2 has no such norms."""
    assert described(named_case, "mamba", ssm__dt_b_c_rms=True).space.normed
    assert not described(named_case, "mamba").space.normed and not described(named_case, "mamba2", ssm__dt_b_c_rms=True).space.normed
    with pytest.raises(MalformedFile, match=r"ssm\.dt_b_c_rms is 1, expected true or false"):
        described(named_case, "mamba", ssm__dt_b_c_rms=1)
