"""What a sandbox leaves on the machine, found without any code of the sandbox: by looking for its name.

Names are made up anew for each test, so whatever mentions one belongs to it. What a process was started with
may not mention it, as in a pod; those are found by the cgroup and the network namespace that they are in. The
kernel gives a namespace's number to the next one as soon as it is free, so after `down` the very processes
that were seen before are looked for.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PLACES = ("/run", "/var/lib", "/var/log", "/var/tmp", "/tmp", "/etc", "/dev/shm")
OTHERS = (Path("/var/lib/millrace"), Path("/run/millrace"))
"""Where other sandboxes have their files: those are not looked through."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the time of its start tells it from another one with the same pid."""

    pid: int
    started: str
    words: str


def of(name: str, seen: frozenset[Process] = frozenset()) -> list[str]:
    """Everything that is there, in words; `seen` are processes that it had."""
    there = processes(name) | frozenset(each for each in seen if _started(each.pid) == each.started)
    return [
        *(f"process {each.pid}: {each.words}" for each in there),
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


def processes(name: str) -> frozenset[Process]:
    """Every process of the sandbox that lives."""
    namespaces, found = network_namespaces(name), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            belongs = (
                name in words
                or name in (process / "environ").read_text(errors="replace")
                or name in (process / "cgroup").read_text()
                or (process / "ns" / "net").stat().st_ino in namespaces
            )
            pid = int(process.name)
            if belongs and (started := _started(pid)):
                found.add(Process(pid, started, words[:120]))
    return frozenset(found)


def _started(pid: int) -> str:
    """When a process was started; nothing if it is gone, or dead and waits only for its parent to notice."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in {"Z", "X"} else rest[18]


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
