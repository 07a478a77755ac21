"""`llamay devices`: the adapters of this machine, and which one is used and why."""

import argparse
import json
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, flag, json_flag

if TYPE_CHECKING:
    from llamay.serve.devices import Choice

NAME = "devices"
HELP = "list the adapters of this machine, and which one is used and why"


def configure(parser: Parser) -> None:
    flag(parser, "-device", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: $LLAMAY_BACKEND or auto)")
    flag(parser, "-check", action="store_true", help="fail unless an adapter is chosen")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.errors import NoAdapter
    from llamay.serve import devices

    chosen = devices.choose(settings.load({"backend": args.device}))
    if args.check and chosen.adapter is None:
        raise NoAdapter(chosen.reason)
    print(json.dumps(_as_json(chosen), indent=2) if args.json else _as_text(chosen))
    return 0


def _as_json(chosen: "Choice") -> dict[str, object]:
    return {
        "backend": chosen.backend,
        "adapter": chosen.adapter.name if chosen.adapter else None,
        "reason": chosen.reason,
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


def _as_text(chosen: "Choice") -> str:
    lines = []
    for adapter in chosen.adapters:
        mark = "*" if adapter is chosen.adapter else " "
        lines.append(f"{mark} {adapter.name}")
        lines.append(f"    type      {adapter.type}, {adapter.backend}, {adapter.driver}")
        lines.append(f"    features  {' '.join(adapter.features) or 'none that matter'}")
        for name, value in adapter.limits.items():
            lines.append(f"    {name:<38} {_size(name, value)}")
    lines.append(f"{'*' if chosen.adapter is None else ' '} numpy")
    lines.append("    type      the CPU through NumPy, no adapter needed")
    lines.append(f"\nused: {chosen.adapter.name if chosen.adapter else 'numpy'}, because {chosen.reason}")
    return "\n".join(lines)


def _size(name: str, value: int) -> str:
    if not name.endswith("size"):
        return str(value)
    return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 2**10:.0f} KiB"
