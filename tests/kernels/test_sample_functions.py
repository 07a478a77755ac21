"""The functions of the sampling kernels, one by one, against fixed.py and Python's own integers."""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from llamay.sample.fixed import LIMIT, cleaned, distances, masses, moments, order_keys, philox
from llamay.tensor.webgpu.device import Device

COUNT = 1 << 15
HEAD = """
@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(64)
fn probe(@builtin(global_invocation_id) id: vec3<u32>) {
  zero = a[0].x & 0u;
  let v = a[id.x];
"""


def probed(device: Device, inputs: NDArray[np.uint32], statement: str) -> NDArray[np.uint32]:
    """out[i] after the statement, with v = inputs[i]."""
    include = files("llamay.wgsl").joinpath("include")
    names = ("sample_numbers.wgsl", "sample_philox.wgsl")
    text = "".join(include.joinpath(name).read_text() for name in names) + HEAD + statement + "\n}\n"
    kernel = device.compile("probe", text)
    a, out = device.buffer(inputs.nbytes), device.buffer(inputs.nbytes)
    device.write(a, inputs)
    device.dispatch([(kernel, device.bind(kernel, a=a, out=out), (len(inputs) // 64, 1, 1))])
    found = device.read(out, np.uint32, inputs.size).reshape(inputs.shape)
    device.release([a, out])
    return found


def random_words(seed: int) -> NDArray[np.uint32]:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (COUNT, 4), dtype=np.uint32)
    ends = np.array([0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    words[:4096] = np.stack(np.meshgrid(*[ends] * 4), -1).reshape(-1, 4)
    return words


def whole(words: NDArray[np.uint32]) -> list[int]:
    """Wide integers [n, 2] as Python's."""
    return [int(low) | int(high) << 32 for low, high in words]


def test_wide_integers(portable_gpu: Device) -> None:
    words = random_words(1)
    a, b = whole(words[:, :2]), whole(words[:, 2:])
    mask = (1 << 64) - 1
    found = probed(portable_gpu, words, "out[id.x] = vec4<u32>(wide_add(v.xy, v.zw), wide_subtract(v.xy, v.zw));")
    assert whole(found[:, :2]) == [x + y & mask for x, y in zip(a, b, strict=True)]
    assert whole(found[:, 2:]) == [x - y & mask for x, y in zip(a, b, strict=True)]
    found = probed(portable_gpu, words, "out[id.x] = vec4<u32>(wide_product(v.x, v.w), wide_fraction(v.xy, v.zw));")
    assert whole(found[:, :2]) == [int(x) * int(y) for x, y in words[:, [0, 3]]]
    assert whole(found[:, 2:]) == [x * y >> 64 for x, y in zip(a, b, strict=True)]
    found = probed(portable_gpu, words, "out[id.x] = vec4<u32>(wide_scaled(v.xy, v.z), u32(wide_less(v.xy, v.zw)));")
    products = [x * int(y) for x, y in zip(a, words[:, 2], strict=True)]
    assert whole(found[:, :2]) == [p >> 32 for p in products]
    assert found[:, 2].tolist() == [int(p & 0xFFFFFFFF > 0) for p in products]
    assert found[:, 3].tolist() == [int(x < y) for x, y in zip(a, b, strict=True)]


def test_keys_and_distances(portable_gpu: Device) -> None:
    words = random_words(2)
    rng = np.random.default_rng(3)
    near = rng.normal(size=COUNT // 2).astype(np.float32) * 20  # the other half: bits of any float
    words[COUNT // 2 :, 0] = near.view(np.uint32)
    z = cleaned(words[:, 0].view(np.float32))
    rates = rng.choice(np.array([1.0, 1.25, 1e-6, 1e6, 0.7], np.float32), COUNT)
    tops = np.maximum(z, rng.choice(np.array([-80.0, 0.5, 11.0, 70.0, LIMIT], np.float32), COUNT))
    words[:, 1], words[:, 2] = tops.view(np.uint32), rates.view(np.uint32)
    found = probed(
        portable_gpu,
        words,
        """  let key = order_key(cleaned(v.x));
  let distance = distance_of(key, bitcast<f32>(v.y), bitcast<f32>(v.z));
  out[id.x] = vec4<u32>(key, distance, bitcast<u32>(float_of(key)), bitcast<u32>(settled(bitcast<f32>(v.w & 0x807fffffu))));""",
    )
    assert (found[:, 0] == order_keys(z)).all()
    want = [distances(z[i : i + 1], tops[i], rates[i])[0] for i in range(COUNT)]
    assert (found[:, 1] == want).all()
    assert (found[:, 2] == z.view(np.uint32)).all()
    assert not found[:, 3].any()


def test_masses_and_means(portable_gpu: Device) -> None:
    words = random_words(4)
    words[5000:, 0] %= 31 << 26
    mass = masses(words[:, 0])
    moment = moments(mass, words[:, 0])
    found = probed(portable_gpu, words, "let m = mass_of(v.x); out[id.x] = vec4<u32>(m, moment_of(m, v.x));")
    assert whole(found[:, :2]) == mass.tolist()
    assert whole(found[:, 2:]) == moment.tolist()
    sums = np.cumsum(np.where(mass > 0, mass, 1)), np.cumsum(moment)
    pairs = np.stack(sums, -1).view("<u4").reshape(COUNT, 4).astype(np.uint32)
    found = probed(portable_gpu, pairs, "out[id.x] = vec4<u32>(mean_distance(v.xy, v.zw), 0u, 0u, 0u);")
    want = [(int(t) << 27) // int(s) for s, t in zip(*sums, strict=True)]
    assert found[:, 0].tolist() == want and max(want) < 1 << 32


def test_the_generator(portable_gpu: Device) -> None:
    words = random_words(5)
    found = probed(portable_gpu, words, "out[id.x] = vec4<u32>(random_bits(v.xy, v.z), 0u, 0u);")
    seeds = whole(words[:, :2])
    assert whole(found[:, :2]) == [philox(int(at), seed) for at, seed in zip(words[:, 2], seeds, strict=True)]
