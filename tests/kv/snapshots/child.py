"""Run by tests as a process of its own: saves a context over an older one, and is killed at every change of the folder.

python child.py crash ROOT      prints at how many points it was killed
python child.py save ROOT       says "ready" and saves until it is killed
"""

import importlib.util
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

SPECIFICATION = importlib.util.spec_from_file_location("kit", Path(__file__).with_name("conftest.py"))
KIT = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(KIT)

from llamay.kv.snapshots import Folder, verify, writer  # noqa: E402

CHANGES = ("open", "mkdir", "link", "fsync", "replace", "unlink", "rmdir")  # of `os`, that change the folder
OLD, NEW = KIT.tokens_of(64), KIT.tokens_of(90, seed=1)


def main(mode: str, root: str) -> None:
    here = KIT.Machine()
    old = here.fill(OLD)
    new = here.fill(NEW, old)
    if mode == "save":
        print("ready", flush=True)
        turn = 0
        while True:
            here.save(Folder(Path(root)), (old, new)[turn % 2], "a")
            turn += 1
    template = Path(root) / "template"
    here.save(Folder(template), old, "a")
    points = 0
    while crashes(here, new, template, Path(root) / str(points), points):
        points += 1
    print(points)


def crashes(here, new, template: Path, root: Path, at: int) -> bool:
    """Saves over the old context, killed at change number `at`; checks what is there, saves again, checks again."""
    shutil.copytree(template, root)
    child = os.fork()
    if child == 0:
        try:
            killed_at(at)
            here.save(Folder(root), new, "a")
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        sys.exit(f"the save at change {at} ended with {status}")
    check(Folder(root), [tuple(OLD + NEW)] if status == 0 else [tuple(OLD), tuple(OLD + NEW)])
    here.save(Folder(root), new, "a")
    Folder(root).sweep()
    check(Folder(root), [tuple(OLD + NEW)])
    pages = {path.name for path in Folder(root).pages.iterdir()}
    if pages != set(Folder(root).find("a").manifest.digests()) or any(Folder(root).aside.iterdir()):
        sys.exit(f"a kill at change {at} left something behind")
    shutil.rmtree(root)
    return status != 0


def check(folder: Folder, allowed: list) -> None:
    """The context is whole and one of those allowed, and nothing else is saved."""
    survey = folder.survey()
    if survey.broken or len(survey.contexts) != 1:
        sys.exit(f"{survey}")
    manifest = folder.find("a").manifest
    verify(folder, manifest)
    if manifest.tokens not in allowed:
        sys.exit("the context has tokens nobody saved")


def killed_at(at: int) -> None:
    """From now on this process is killed just before its change number `at`, in whichever thread."""
    guard = threading.Lock()
    seen = 0

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: object, **options: object) -> object:
            nonlocal seen
            with guard:
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1
            return real(*args, **options)

        setattr(owner, name, wrapper)

    for name in CHANGES:
        counted(os, name)
    counted(writer.Writer, "_write")


if __name__ == "__main__":
    main(*sys.argv[1:])
