"""`llamay version`: what is installed here."""

import argparse
import json
import platform

from llamay import __version__
from llamay.cli.flags import Parser, json_flag

NAME = "version"
HELP = "print the version of llamay, Python and the packages that matter"

PACKAGES = ("wgpu", "numpy", "jinja2", "regex")


def configure(parser: Parser) -> None:
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    import importlib.metadata

    versions = {"llamay": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    if args.json:
        print(json.dumps(versions))
        return 0
    print(f"llamay {versions.pop('llamay')}")
    print("  ".join(f"{name} {version}" for name, version in versions.items()))
    return 0
