"""Opening an adapter for a program: tuned, self-tested, and with plainer kernels where its subgroups compute wrong."""

from pathlib import Path
from typing import Any

from llamay.errors import WrongNumbers
from llamay.tensor.program import Program
from llamay.tensor.webgpu import tune
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.executor import WebGPUExecutor
from llamay.tensor.webgpu.launch import LAUNCHES


def open_executor(adapter: Adapter, program: Program, pages: int, folder: Path, **sizes: Any) -> WebGPUExecutor:
    """An executor on a device of its own; `folder` keeps what was measured, `sizes` are as WebGPUExecutor's.

    Where the kernels that reduce over subgroups fail the self-test, those that need none
    take their place, and a note says so.  Raises WrongNumbers where those fail too, and
    what opening and loading raise; the device is closed then.
    """
    device = Device(adapter)
    try:
        return _loaded(device, program, pages, folder, sizes)
    except WrongNumbers as error:
        if device.launch.reduce != "subgroup":
            raise
        executor = _loaded(Device(adapter, launch=LAUNCHES["portable"]), program, pages, folder, sizes)
        executor.notes = (f"{error}; here kernels without subgroups took their place, which passed", *executor.notes)
        return executor


def _loaded(device: Device, program: Program, pages: int, folder: Path, sizes: dict[str, Any]) -> WebGPUExecutor:
    try:
        tuning = tune.choose(device, folder)
        device.launch = tuning.applied(device.launch)
        executor = WebGPUExecutor(device, program, pages, **sizes)
    except BaseException:
        device.close()
        raise
    executor.tuning = tuning
    return executor
