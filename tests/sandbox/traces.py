"""What a sandbox leaves on the machine, found without any code of the sandbox: by looking for its name.

Names are made up anew for each test, so whatever mentions one belongs to it. What a process was started with
may not mention it, as in a pod; those are found by the network namespace and the cgroup that they are in.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PLACES = ("/run", "/var/lib", "/var/log", "/var/tmp", "/tmp", "/etc", "/dev/shm")
OTHERS = (Path("/var/lib/millrace"), Path("/run/millrace"))
"""Where other sandboxes have their files: those are not looked through."""


def of(name: str, namespaces: frozenset[int] = frozenset()) -> list[str]:
    """Everything that is there, in words; `namespaces` are the network namespaces it had."""
    return [
        *_processes(name, namespaces | network_namespaces(name)),
        *(f"mount {line}" for line in _lines("/proc/self/mountinfo", name)),
        *(f"socket {line}" for line in _lines("/proc/net/unix", name)),
        *_network_namespaces_by_name(name),
        *(f"cgroup {path}" for path in _paths("/sys/fs/cgroup", name)),
        *(f"file {path}" for place in PLACES for path in _paths(place, name)),
    ]


def network_namespaces(name: str) -> frozenset[int]:
    """The sandbox's network namespace and those of its pods, as far as they are mounted somewhere."""
    found = set()
    for line in _lines("/proc/self/mountinfo", name):
        place, _, source = line.partition(" - ")
        if source.split()[0] == "nsfs":
            with suppress(OSError):
                found.add(Path(place.split()[4]).stat().st_ino)
    return frozenset(found)


def _processes(name: str, namespaces: frozenset[int]) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}:
                continue
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mentions = (
                name in words
                or name in (process / "environ").read_text(errors="replace")
                or name in (process / "cgroup").read_text()
            )
            if mentions or (process / "ns" / "net").stat().st_ino in namespaces:
                yield f"process {process.name}: {words[:120]}"


def _lines(path: str, name: str) -> list[str]:
    return [line for line in Path(path).read_text().splitlines() if name in line]


def _network_namespaces_by_name(name: str) -> Iterator[str]:
    told = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    yield from (f"network namespace {line}" for line in told.splitlines() if name in line)


def _paths(place: str, name: str) -> Iterator[Path]:
    """Files, directories and links that are named after the sandbox, or lead to it."""
    for directory, directories, files in os.walk(place):
        here = Path(directory)
        if here in OTHERS:
            directories[:] = [each for each in directories if name in each]
        for each in (*directories, *files):
            path = here / each
            leads_to = ""
            with suppress(OSError):
                leads_to = str(path.readlink()) if path.is_symlink() else ""
            if name in each or name in leads_to:
                yield path
        # What is named after the sandbox is told as a whole.
        directories[:] = [each for each in directories if name not in each]
