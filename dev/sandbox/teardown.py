"""Taking a sandbox down so that nothing of it is left, however it ended.

Nothing here trusts that `up` came to its end: processes are found by what they are (in the sandbox's network
namespace, in its cgroups, started with its mark), not only by what was written down. Each of those is the
sandbox's own, so no process of another sandbox is ever signalled.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox import cgroups, mounts, netns, processes, progress
from sandbox.layout import Layout, SandboxError

_CONTAINER_LOGS = Path("/var/log/containers")
_CNI_RESULTS = (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache/results"))
_SHIM_SOCKETS = Path("/run/containerd/s")
# The kubelet has this path compiled in; two of them share it without harm.
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


def down(layout: Layout) -> None:
    """Remove everything, then look again and say what is left."""
    _refuse_from_inside(layout)
    with progress.step(f"Removing sandbox {layout.name}") as step:
        step.say("stopping processes")
        _kill_all(layout)
        step.say("unmounting")
        mounts.remove_below(layout.state, layout.run)
        step.say("removing cgroups and the network namespace")
        cgroups.remove(layout)
        netns.delete(layout)
        step.say("removing files")
        _remove_traces(layout)
        _remove_directories(layout)
        _remove_shared_directories()
        left = list(_leftovers(layout))
    if left:
        raise SandboxError(
            f"sandbox {layout.name!r} is down, but this is left:\n"
            + "\n".join(f"  {each}" for each in left)
            + "\n  Repeat `down`; if it stays, something outside holds it (`fuser -vm PATH` shows what)."
        )


def _refuse_from_inside(layout: Layout) -> None:
    inside = netns.pids(layout)
    pid = os.getpid()
    while pid > 1:
        if pid in inside:
            raise SandboxError(
                "this shell runs inside the sandbox: leave it (exit), and run `down` from outside"
            )
        pid = processes.parent_of(pid) or 0


def _all_pids(layout: Layout) -> set[int]:
    """Every process of this sandbox. Zombies are dead already: their parents will collect them."""
    found = netns.pids(layout) | cgroups.pids(layout) | processes.marked(layout) | processes.recorded(layout)
    return {pid for pid in found if processes.alive(pid)}


def _kill_all(layout: Layout, *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    # Whoever starts others goes first, or it would start new ones while the old ones die.
    for component in ("kubelet", "containerd"):
        pid = processes.pid_of(layout, component)
        if pid is not None:
            _kill(pid)
    while pids := _all_pids(layout):
        cgroups.thaw(layout)
        for pid in pids:
            _kill(pid)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    processes.reap(pid)


def _traces(layout: Layout) -> Iterator[Path]:
    """Files that programs keep outside the sandbox's directories because their places are compiled in."""
    for link in _CONTAINER_LOGS.glob("*.log"):
        if link.is_symlink() and layout.state in link.readlink().parents:
            yield link
    # NETWORK-CONTAINER-DEVICE: a sandbox `a` must not take what belongs to `a-b`.
    ours = re.compile(rf"{re.escape(layout.netns)}-[0-9a-f]{{64}}-[a-z0-9]+")
    for directory in _CNI_RESULTS:
        yield from (each for each in directory.glob("*") if ours.fullmatch(each.name))
    for address in (layout.run / "containerd").glob("io.containerd.runtime.v2.task/*/*/address"):
        socket = Path(address.read_text().strip().removeprefix("unix://"))
        if socket.parent == _SHIM_SOCKETS and socket.exists():
            yield socket


def _remove_traces(layout: Layout) -> None:
    for trace in list(_traces(layout)):
        trace.unlink(missing_ok=True)


def _remove_directories(layout: Layout) -> None:
    # Deleting through a mount would delete what is mounted.
    if mounts.below(layout.state, layout.run):
        return
    for directory in (layout.run, layout.state):
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):
            directory.parent.rmdir()


def _remove_shared_directories() -> None:
    """The last sandbox to go takes along the places that all of them share, as far as they are empty."""
    if any(directory.exists() for directory in (Path("/var/lib/millrace"), Path("/run/millrace"))):
        return
    for name in ("kubelet.sock", "kubelet_internal_checkpoint", "DEPRECATION"):
        (_DEVICE_PLUGINS / name).unlink(missing_ok=True)
    for directory in (
        _CONTAINER_LOGS,
        *_CNI_RESULTS,
        *(results.parent for results in reversed(_CNI_RESULTS)),
        _SHIM_SOCKETS,
        _SHIM_SOCKETS.parent,
        _DEVICE_PLUGINS,
        _DEVICE_PLUGINS.parent,
    ):
        with suppress(OSError):
            directory.rmdir()


def _leftovers(layout: Layout) -> Iterator[str]:
    for pid in sorted(_all_pids(layout)):
        yield f"process {pid}: {processes.command_line(pid)}"
    yield from (f"mount {target}" for target in mounts.below(layout.state, layout.run))
    yield from (f"cgroup {group}" for group in cgroups.remaining(layout))
    if layout.netns_path.exists():
        yield f"network namespace {layout.netns}"
    yield from (
        f"file {path}" for path in (*_traces(layout), layout.run, layout.state) if os.path.lexists(path)
    )
