"""Run by tests as a process of its own, which forks: pulls that may be killed, and pulls killed at every system call that changes the store.

It reads a line a job, `MODE ROOT SERVER SOURCE` as a JSON list, and answers in lines:
pull     the number of a process that pulls
wait     of such a number (in place of ROOT): how that process ended
crash    how many points there were, 0 where something is wrong, which stderr tells
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import httpx  # noqa: F401  imported here, so that a kill meets the pull and not the import

from llamay.store import Store
from llamay.store.network import Network, Patience
from llamay.store.pull import pull
from llamay.store.sources import Hosts

FAILED = 255  # the exit code of a fork that an exception ended
CHANGES = ("open", "write", "replace", "unlink", "ftruncate", "fsync", "link")


def main() -> None:
    for line in sys.stdin:
        mode, root, server, source = json.loads(line)
        if mode == "wait":
            print(os.waitstatus_to_exitcode(os.waitpid(root, 0)[1]), flush=True)
            continue
        hosts = Hosts(registry=server, hub=server, index=f"{server}/simple")
        if mode == "pull":
            print(forked(lambda root=root, source=source, hosts=hosts: pull(Store(Path(root)), source, hosts=hosts)), flush=True)
        else:
            code = in_fork(lambda root=root, source=source, hosts=hosts: crash(root, source, hosts))
            print(code if 0 < code < FAILED else 0, flush=True)


def crash(root: str, source: str, hosts: Hosts) -> int:
    """Pulls, killed at one change after the other; returns how many there are."""
    os.fsync = lambda handle: None  # a kill takes nothing from the kernel, and the disk is slow
    pull(Store(Path(root) / "warm"), source, hosts=hosts)  # imports happen here, once
    count = 0
    while crashes(Path(root) / str(count), hosts, source, count):
        count += 1
    return count


def crashes(root: Path, hosts: Hosts, source: str, at: int) -> bool:
    """Pulls into an empty store, killed at the change number `at`; checks, pulls again, checks again."""
    killed = in_fork(lambda: pull_killed_at(root, hosts, source, at)) == -signal.SIGKILL
    check(Store(root), complete=not killed)
    status = in_fork(lambda: pull(Store(root), source, hosts=hosts, network=impatient()))
    if status != 0:
        sys.exit(f"after a kill at change {at} the next pull failed with {status}")
    check(Store(root), complete=True)
    return killed


def pull_killed_at(root: Path, hosts: Hosts, source: str, at: int) -> None:
    seen = 0

    def counted(name: str):
        real = getattr(os, name)

        def wrapper(*args: object, **options: object) -> object:
            nonlocal seen
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            return real(*args, **options)

        return wrapper

    for name in CHANGES:
        setattr(os, name, counted(name))
    pull(Store(root), source, hosts=hosts, network=impatient())


def impatient() -> Network:
    return Network(patience=lambda: Patience(attempts=1))


def forked(work) -> int:
    """The number of a process that does it; its exit code is the number that came of it."""
    child = os.fork()
    if child == 0:
        found = None
        try:
            found = work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(FAILED)
        os._exit(found if isinstance(found, int) else 0)
    return child


def in_fork(work) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])


def check(store: Store, complete: bool) -> None:
    """Every blob is what its name says, every manifest is whole; a complete pull leaves nothing behind."""
    for path in store.blobs.glob("sha256-*"):
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name.removeprefix("sha256-"):
            sys.exit(f"{path} is not what its name says")
    survey = store.survey()
    if survey.broken:
        sys.exit(f"broken: {survey.broken}")
    for model in survey.models:
        store.file(model)
    if complete:
        if len(survey.models) != 1:
            sys.exit(f"{len(survey.models)} models after a complete pull")
        with store.locked():
            pass


if __name__ == "__main__":
    main()
