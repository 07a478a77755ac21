"""The kernels of one adapter, tested without a model: small made-up ones, a tensor type each, as a load tests its own."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from llamay.bench import synthetic
from llamay.errors import WrongNumbers
from llamay.sample import Sampling
from llamay.tensor.webgpu import tune
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.device import Device, Guest
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.plan import Plan
from llamay.tensor.webgpu.selftest import Row, SelfTest
from llamay.tensor.webgpu.state import StateLayout

TYPES = ("q4_k_m", "q4_0", "q8_0", "f16")  # of what people have most
PAGES = 24
SAMPLINGS = (Sampling(), Sampling(top_k=0, top_p=0.9, repeat_penalty=1.1), Sampling(top_k=0, typical_p=0.7))


def kernel_rows(adapter: Adapter, folder: Path, types: tuple[str, ...] = TYPES) -> Iterator[Row]:
    """Yields a row for each kernel, as soon as it was tested; the last one where it is wrong.

    `folder` keeps what was tuned.  Raises WrongNumbers after a wrong row, and DeviceError.
    """
    device = Device(adapter)
    try:
        device.launch = tune.choose(device, folder).applied(device.launch)
        for type in types:
            yield from _tested(device, type)
    finally:
        device.close()


def _tested(device: Device, type: str) -> Iterator[Row]:
    guest, shown = Guest(device), 0
    try:
        program = synthetic.make(f"tiny:{type}").program
        layout = StateLayout(max(device.launch.tokens), 4 * PAGES)
        test = SelfTest(Plan(Memory(guest, program, layout.rows, PAGES, layout), layout))
        stages: list[Callable[[], None]] = [test.start]
        stages += [partial(test.prove_sampling, (sampling,)) for sampling in SAMPLINGS]
        stages += [partial(test.prove, tokens, long=True) for tokens in device.launch.tokens]
        for stage in stages:
            failure: WrongNumbers | None = None
            try:
                stage()
            except WrongNumbers as error:
                failure = error
            yield from test.rows[shown:]
            shown = len(test.rows)
            if failure is not None:
                raise failure
    finally:
        guest.close()
