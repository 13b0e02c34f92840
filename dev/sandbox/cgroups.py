"""The control groups of a sandbox, in every hierarchy that the machine has: version 1, version 2, or both."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.layout import Layout
from sandbox.mounts import mounts

_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


def ensure(layout: Layout) -> None:
    """Create the group that the kubelet is told to stay below; it does not create that one itself."""
    for kind, root in _hierarchies():
        group = root / layout.cgroup.lstrip("/")
        if kind == "cgroup2":
            _delegate(root)
        group.mkdir(exist_ok=True)
        if kind == "cgroup2":
            _delegate(group)
        # A new cpuset of version 1 is empty, and nothing can run in it.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if kind == "cgroup" and (group / setting).exists() and not (group / setting).read_text().strip():
                (group / setting).write_text((root / setting).read_text())


def pids(layout: Layout) -> set[int]:
    """Every process in the sandbox's groups."""
    found: set[int] = set()
    for group in _groups(layout):
        with suppress(OSError):
            found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    return found - {0, os.getpid()}


def thaw(layout: Layout) -> None:
    """Let frozen processes run: a frozen one does not even die."""
    for group in _groups(layout):
        for setting, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            with suppress(OSError):
                if (group / setting).exists():
                    (group / setting).write_text(value)


def remove(layout: Layout, *, seconds: float = 10.0) -> None:
    """Remove the groups from the leaves up. The kernel needs a moment after the last process has died."""
    deadline = time.monotonic() + seconds
    while remaining := _groups(layout):
        for group in remaining:
            with suppress(OSError):
                group.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def remaining(layout: Layout) -> list[Path]:
    """Groups that are still there."""
    return _groups(layout)


def _groups(layout: Layout) -> list[Path]:
    """All groups of the sandbox, children before their parents."""
    found: list[Path] = []
    for _, root in _hierarchies():
        top = root / layout.cgroup.lstrip("/")
        found += [Path(directory) for directory, _, _ in os.walk(top, topdown=False)]
    return found


def _hierarchies() -> Iterator[tuple[str, Path]]:
    for mount in mounts():
        if mount.kind in {"cgroup", "cgroup2"}:
            yield mount.kind, mount.target


def _delegate(group: Path) -> None:
    """Hand the controllers of a version 2 group down to its children, as far as it has them itself."""
    available = (group / "cgroup.controllers").read_text().split()
    for controller in _CONTROLLERS:
        if controller in available:
            with suppress(OSError):
                (group / "cgroup.subtree_control").write_text(f"+{controller}")
