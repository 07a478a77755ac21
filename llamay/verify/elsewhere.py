"""Another process that restores a saved context and goes on: started here, and what it runs."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from llamay.errors import LlamayError
from llamay.kv.snapshots import Folder, origin_of, restore
from llamay.kv.table import sized
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.batch import Ints
from llamay.tensor.program import Floats
from llamay.verify.stage import stage
from llamay.verify.subject import Subject

NAME = "verify"  # of the saved context
RESULT = "logits"  # a file in its folder
LONGEST = 1800  # seconds that loading the model and computing may take


def continued(subject: Subject, folder: Path, wanted: Ints) -> Floats:
    """Logits [wanted, vocabulary] of the tokens a saved context has pending, computed by another process.

    LlamayError with its last words where it fails.
    """
    loaded = subject.loaded
    job = {
        "path": str(loaded.file.path),
        "settings": {field.name: _plain(getattr(loaded.settings, field.name)) for field in fields(Settings)},
        "folder": str(folder),
        "wanted": wanted.tolist(),
    }
    words = [sys.executable, "-m", "llamay.verify.elsewhere"]
    try:
        done = subprocess.run(words, input=json.dumps(job).encode(), capture_output=True, timeout=LONGEST)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LlamayError(f"another process could not go on from the snapshot: {error}") from error
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise LlamayError(f"another process could not go on from the snapshot: {last[0]}")
    return np.fromfile(folder / RESULT, np.float32).reshape(len(wanted), -1)


def main(job: dict[str, Any]) -> None:
    """Restores, computes what is pending, and leaves the logits in the folder."""
    folder = Folder(Path(job["folder"]))
    saved = folder.find(NAME).manifest
    chosen = {field.name: job["settings"][field.name] for field in fields(Settings)}
    for name in ("models", "contexts", "cache"):
        chosen[name] = Path(chosen[name])
    pages = 2 * sized(len(saved.tokens))
    with load.load(Path(job["path"]), Settings(**chosen)) as loaded, stage(loaded.executor, pages) as on:
        on.cache.extend(on.new(), 1)  # the pages are not where they were
        here = origin_of(on.executor, on.cache, saved.origin.model, saved.origin.weights)
        found = restore(folder, saved, on.cache, on.executor, here)
        logits = on.read(found.context, np.array(found.pending, np.int32), np.array(job["wanted"], np.int32))
    logits.astype(np.float32).tofile(folder.root / RESULT)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


if __name__ == "__main__":
    main(json.load(sys.stdin))
