"""`llamay devices`: the adapters of this machine, and which one is used and why."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, flag, json_flag

if TYPE_CHECKING:
    from llamay.serve.loading.devices import Choice, Kernels
    from llamay.settings import Settings
    from llamay.tensor.webgpu.adapters import Adapter
    from llamay.tensor.webgpu.selftest import Row

NAME = "devices"
HELP = "list the adapters of this machine, and which one is used and why"


def configure(parser: Parser) -> None:
    flag(parser, "-device", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: $LLAMAY_BACKEND or auto)")
    flag(parser, "-check", action="store_true", help="fail unless an adapter is chosen")
    flag(parser, "-test", action="store_true", help="test the chosen adapter's kernels against NumPy")
    flag(parser, "-tune", action="store_true", help="measure how its kernels are launched best, and keep that")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.errors import DeviceError, NoAdapter
    from llamay.serve.loading import devices

    owner = settings.load({"backend": args.device})
    chosen = devices.choose(owner)
    if chosen.adapter is None and (args.check or args.test or args.tune):
        raise NoAdapter(chosen.reason)
    kernels: Kernels | str = "numpy"
    if chosen.adapter is not None:
        try:
            kernels = devices.kernels(chosen.adapter, owner, measure=args.tune)
        except DeviceError as error:
            if args.test or args.tune:
                raise
            kernels = str(error)
    if args.json:
        return _print_json(_as_json(chosen, kernels), chosen.adapter if args.test else None, owner)
    print(_as_text(chosen, kernels))
    if args.test and chosen.adapter is not None:
        from llamay.bench.kernels import kernel_rows

        print("\nself-test")
        for row in kernel_rows(chosen.adapter, owner.cache):
            print(_line(row), flush=True)
    return 0


def _print_json(page: dict[str, object], tested: "Adapter | None", owner: "Settings") -> int:
    """With the rows of the self-test where there is an adapter to test; raises WrongNumbers after printing."""
    from llamay.bench.kernels import kernel_rows
    from llamay.errors import WrongNumbers

    rows: list[dict[str, object]] = []
    wrong: WrongNumbers | None = None
    if tested is not None:
        page["self-test"] = rows
        try:
            rows += (asdict(row) for row in kernel_rows(tested, owner.cache))
        except WrongNumbers as error:
            wrong = error
    print(json.dumps(page, indent=2))
    if wrong is not None:
        raise wrong
    return 0


def _line(row: "Row") -> str:
    mark = "ok" if row.passed else "unused" if row.tokens > 1 else "WRONG"
    found = f"{row.note}, {row.error:.2g} of the bound" if row.tokens == 1 else row.note
    return f"  {mark:<6} {found:<54} {row.kernel}"


def _as_json(chosen: "Choice", kernels: "Kernels | str") -> dict[str, object]:
    return {
        "backend": chosen.backend,
        "adapter": chosen.adapter.name if chosen.adapter else None,
        "reason": chosen.reason,
        "kernels": kernels if isinstance(kernels, str) else asdict(kernels),
        "adapters": [
            {
                "name": adapter.name,
                "type": adapter.type,
                "backend": adapter.backend,
                "driver": adapter.driver,
                "features": list(adapter.features),
                "limits": adapter.limits,
                "chosen": adapter is chosen.adapter,
            }
            for adapter in chosen.adapters
        ],
    }


def _as_text(chosen: "Choice", kernels: "Kernels | str") -> str:
    lines: list[str] = []
    for adapter in chosen.adapters:
        mark = "*" if adapter is chosen.adapter else " "
        lines.append(f"{mark} {adapter.name}")
        lines.append(f"    type      {adapter.type}, {adapter.backend}, {adapter.driver}")
        lines.append(f"    features  {' '.join(adapter.features) or 'none that matter'}")
        for name, value in adapter.limits.items():
            lines.append(f"    {name:<38} {_size(name, value)}")
        if adapter is chosen.adapter:
            lines += _launched(kernels)
    lines.append(f"{'*' if chosen.adapter is None else ' '} numpy")
    lines.append("    type      the CPU through NumPy, no adapter needed")
    lines.append(f"\nused: {chosen.adapter.name if chosen.adapter else 'numpy'}, because {chosen.reason}")
    return "\n".join(lines)


def _launched(kernels: "Kernels | str") -> list[str]:
    if isinstance(kernels, str):
        return [f"    kernels   {kernels}"]
    return [
        f"    kernels   {kernels.launch}",
        f"    tuned     {kernels.tuning}",
        f"    numerics  {kernels.numerics}",
    ]


def _size(name: str, value: int) -> str:
    if not name.endswith("size"):
        return str(value)
    return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 2**10:.0f} KiB"
