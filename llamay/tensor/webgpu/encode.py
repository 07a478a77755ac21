"""Command lists become submissions: the fast way through wgpu-py's handles, or its public calls where those moved."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.meter import Meter
from llamay.tensor.webgpu.pace import Step


class Encoder:
    """Records dispatches into one pass a submission and submits them.

    wgpu-py's public methods cost about 0.8 us more a call than the C functions they wrap;
    at 150 dispatches a token that is worth having.  The handles stay owned by wgpu-py's
    objects, which the caller keeps alive.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.meter = Meter(device)
        try:
            from wgpu.backends.wgpu_native import ffi, lib

            names = ("SetPipeline", "SetBindGroup", "DispatchWorkgroups", "End", "Release")
            self._calls: tuple[Any, ...] | None = tuple(getattr(lib, f"wgpuComputePassEncoder{n}") for n in names)
            self._null = ffi.NULL
        except (ImportError, AttributeError):
            self._calls = None

    def submit(
        self,
        steps: Sequence[Step],
        copies: Sequence[tuple[Any, int, Any, int, int]] = (),
        reads: Any = None,
        done: Callable[[float], None] | None = None,
    ) -> Any:
        """Runs the steps in order, then the copies (source, offset, target, offset, bytes).

        Returns the promise that `reads`, a buffer copied to, can be read: see `Watch.submit`.
        """
        self.device.check()
        encoder = self.device.handle.create_command_encoder()
        if steps:
            run = self.meter.begin_pass(encoder)
            if self._calls is not None and hasattr(run, "_internal"):
                self._record(run._internal, steps)
            else:
                for pipeline, group, x, y, z in steps:
                    run.set_pipeline(pipeline)
                    run.set_bind_group(0, group)
                    run.dispatch_workgroups(x, y, z)
            run.end()
        for copy in copies:
            encoder.copy_buffer_to_buffer(*copy)
        start = time.perf_counter()
        promise = self.device.submit(encoder, reads, done)
        self.meter.submitted(start, len(steps))
        return promise

    def _record(self, run: Any, steps: Sequence[Step]) -> None:
        set_pipeline, set_group, dispatch = self._calls[:3]  # type: ignore[index]
        null, last = self._null, None
        for pipeline, group, x, y, z in steps:
            if pipeline is not last:
                set_pipeline(run, pipeline._internal)
                last = pipeline
            set_group(run, 0, group._internal, 0, null)
            dispatch(run, x, y, z)
