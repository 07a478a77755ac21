"""kill -9 during a save: the old context is intact, the new one absent or whole, and the next save goes well."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamay.kv.snapshots import Folder, verify

CHILD = Path(__file__).with_name("child.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill at every point needs fork")
def test_a_kill_at_every_change_of_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(CHILD), "crash", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 40  # changes in one save of ten pages over four


def test_kills_at_random_moments(machine, folder: Folder, tokens) -> None:
    chance = random.Random(5)
    old, new = tuple(tokens(64)), (*tokens(64), *tokens(90, seed=1))
    here = machine()
    here.save(folder, here.fill(tokens(64)))
    seen: set[tuple[int, ...]] = set()
    kills = 0
    while kills < 4 or seen != {old, new}:
        assert kills < 60, "the kills do not meet the saves"
        command = [sys.executable, str(CHILD), "save", str(folder.root)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        if kills % 2:  # on a slow machine the first save would not be over before any kill
            wanted, until = chance.choice((old, new)), time.monotonic() + 60
            while folder.find("a").manifest.tokens != wanted:
                assert time.monotonic() < until, "it saves no more"
        time.sleep(chance.uniform(0.0, 0.15))
        child.kill()
        kills += 1
        _, errors = child.communicate()
        assert child.returncode == -signal.SIGKILL, errors
        survey = folder.survey()
        assert survey.broken == [] and [saved.name for saved in survey.contexts] == ["a"]
        manifest = folder.find("a").manifest
        verify(folder, manifest)
        assert manifest.tokens in (old, new)
        seen.add(manifest.tokens)
    folder.sweep()
    assert {path.name for path in folder.pages.iterdir()} == set(manifest.digests())
    assert not any(folder.aside.iterdir())
