"""Daemons of a sandbox: started detached in its network namespace, found again by pid and start time.

The start time guards against a recycled pid: only the very process that was started is ever signalled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.layout import Layout, SandboxError


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that keeps running. `ready` is polled until it is true."""

    name: str
    argv: list[str]
    ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0


MARK = "MILLRACE_SANDBOX_DAEMON"
"""A variable in every daemon's environment: it is found even if its pid was never written down."""

_NOT_INHERITED = {"http_proxy", "https_proxy", "no_proxy", "all_proxy", "kubeconfig"}


def _environment(layout: Layout) -> dict[str, str]:
    """The caller's environment without what would lead a daemon out of the sandbox."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in _NOT_INHERITED}
    return {**kept, MARK: layout.name}


def _stat(pid: int) -> tuple[str, str] | None:
    """State and start time of a process, or None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def _pid_file(layout: Layout, name: str) -> Path:
    return layout.run / "pids" / f"{name}.json"


def pid_of(layout: Layout, name: str) -> int | None:
    """The pid of a daemon that was started here and still runs."""
    try:
        record = json.loads(_pid_file(layout, name).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    stat = _stat(record["pid"])
    if stat is None or stat[0] == "Z" or stat[1] != record["started"]:
        return None
    return int(record["pid"])


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in {"Z", "X"}


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def command_line(pid: int) -> str:
    """What a process was started with, for people to read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


def recorded(layout: Layout) -> set[int]:
    """The pids of all daemons that were written down and still run."""
    names = (path.stem for path in (layout.run / "pids").glob("*.json"))
    return {pid for pid in (pid_of(layout, name) for name in names) if pid is not None}


def marked(layout: Layout) -> set[int]:
    """The pids of all processes that carry the sandbox's mark: its daemons and what they started."""
    mark = f"{MARK}={layout.name}".encode()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found - {os.getpid()}


def start(layout: Layout, daemon: Daemon) -> None:
    """Start a daemon unless it runs already, and wait until it is ready."""
    if pid_of(layout, daemon.name) is None:
        _record_if_forgotten(layout, daemon)
    if pid_of(layout, daemon.name) is None:
        layout.logs.mkdir(parents=True, exist_ok=True)
        with (layout.logs / f"{daemon.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*layout.enter(), *daemon.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**_environment(layout), **daemon.env},
                cwd="/",
            )
        _record(layout, daemon.name, process.pid)
    wait_until_ready(layout, daemon)


def _record(layout: Layout, name: str, pid: int) -> None:
    stat = _stat(pid)
    path = _pid_file(layout, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "started": stat[1] if stat else ""}))


def _record_if_forgotten(layout: Layout, daemon: Daemon) -> None:
    """Write down a daemon that runs without a record: who started it was killed before it could do so."""
    wanted = "\0".join([*daemon.argv, ""]).encode()
    started: dict[int, int] = {}
    for pid in marked(layout):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted and (stat := _stat(pid)):
                started[pid] = int(stat[1])
    if started:
        # A child that it has just forked looks the same, and is younger.
        _record(layout, daemon.name, min(started, key=started.__getitem__))


def wait_until_ready(layout: Layout, daemon: Daemon) -> None:
    """Poll readiness; a daemon that dies or never gets there is an error that shows its last words."""
    deadline = time.monotonic() + daemon.timeout
    while not daemon.ready():
        if pid_of(layout, daemon.name) is None:
            raise SandboxError(f"{daemon.name} stopped while starting.\n{_last_words(layout, daemon.name)}")
        if time.monotonic() > deadline:
            raise SandboxError(
                f"{daemon.name} was not ready after {daemon.timeout:.0f} s.\n"
                f"{_last_words(layout, daemon.name)}"
            )
        time.sleep(0.1)


def stop(layout: Layout, name: str, *, grace: float = 10.0, first: signal.Signals = signal.SIGTERM) -> None:
    """Stop a daemon: ask, wait, then kill. One that is gone already is fine."""
    pid = pid_of(layout, name)
    if pid is not None:
        os.kill(pid, first)
        deadline = time.monotonic() + grace
        while pid_of(layout, name) is not None and time.monotonic() < deadline:
            reap(pid)
            time.sleep(0.05)
        if pid_of(layout, name) is not None:
            os.kill(pid, signal.SIGKILL)
            while pid_of(layout, name) is not None:
                reap(pid)
                time.sleep(0.05)
    _pid_file(layout, name).unlink(missing_ok=True)


def reap(pid: int) -> None:
    """Collect a child of ours; a daemon started by an earlier command is init's."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _last_words(layout: Layout, name: str, lines: int = 15) -> str:
    path = layout.logs / f"{name}.log"
    try:
        tail = path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        tail = []
    return "\n".join([f"  the end of {path}:", *(f"  | {line}" for line in tail)])
