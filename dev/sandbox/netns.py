"""The network namespace that holds a whole sandbox: without a link, so nothing can leave the machine."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sandbox.layout import NODE_CIDR, NODE_IP, Layout, SandboxError

NODE_DEVICE = "node0"
OUTSIDE = "SANDBOX_OUTSIDE"
_CLONE_NEWNET = 0x40000000

Answer = TypeVar("Answer")


def exists(layout: Layout) -> bool:
    """Whether the namespace is there and alive (a file left by a crash does not count)."""
    return layout.netns_path.exists() and _run(*layout.enter(), "true", check=False).returncode == 0


def ensure(layout: Layout) -> None:
    """Create the namespace with the node's address on a bridge, and a default route over it.

    A bridge and not a dummy device: not every kernel has the latter. The kubelet wants a node address that is
    not loopback, and a default route.
    """
    if not exists(layout):
        _run("ip", "netns", "delete", layout.netns, check=False)
        _run("ip", "netns", "add", layout.netns)
    prefix = NODE_CIDR.partition("/")[2]
    inside = layout.enter()
    _run(*inside, "ip", "link", "set", "lo", "up")
    if _run(*inside, "ip", "link", "show", NODE_DEVICE, check=False).returncode != 0:
        _run(*inside, "ip", "link", "add", NODE_DEVICE, "type", "bridge")
    _run(*inside, "ip", "address", "replace", f"{NODE_IP}/{prefix}", "dev", NODE_DEVICE)
    _run(*inside, "ip", "link", "set", NODE_DEVICE, "up")
    _run(*inside, "ip", "route", "replace", "default", "dev", NODE_DEVICE)
    # Pods are forwarded to Services by the node; bridged packets pass its NAT rules only when told to.
    for setting in ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"):
        _run(*inside, "sh", "-c", f"echo 1 > /proc/sys/{setting.replace('.', '/')}")


def call_inside(layout: Layout, function: Callable[[], Answer]) -> Answer:
    """Call a function on a thread that has entered the namespace, and that ends with the call."""

    def entered() -> Answer:
        libc = ctypes.CDLL(None, use_errno=True)
        with layout.netns_path.open("rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {layout.netns_path}")
        return function()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(entered).result()


def remember_outside() -> None:
    """Before this process becomes one inside: hold on to the machine's network, for `leave`."""
    if leave():
        return  # it is inside already, and knows
    held = os.open("/proc/self/ns/net", os.O_RDONLY)
    os.set_inheritable(held, True)
    os.environ[OUTSIDE] = f"/proc/{os.getpid()}/fd/{held}"


def leave() -> list[str]:
    """The command prefix for what needs the machine's network, such as a download; empty if it is there."""
    held = os.environ.get(OUTSIDE, "")
    return ["nsenter", f"--net={held}"] if held and Path(held).exists() else []


def pids(layout: Layout) -> set[int]:
    """Every process inside the namespace."""
    if not layout.netns_path.exists():
        return set()
    found = _run("ip", "netns", "pids", layout.netns, check=False).stdout.split()
    return {int(pid) for pid in found} - {os.getpid()}


def delete(layout: Layout) -> None:
    """Remove the namespace; its devices and rules go with it."""
    if layout.netns_path.exists():
        _run("ip", "netns", "delete", layout.netns, check=False)


def _run(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise SandboxError(
            f"`{' '.join(argv)}` failed: {result.stderr.strip()}\n"
            "  The sandbox needs CAP_NET_ADMIN and CAP_SYS_ADMIN, and a kernel with bridge and netfilter."
        )
    return result
