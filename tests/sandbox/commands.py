"""The sandbox as a person uses it: `python -m sandbox`, from outside of any."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WHOLE = 600.0
"""Seconds that a whole sandbox may take: images are built if nobody did so before."""


def fresh_name() -> str:
    """A name that nothing else on the machine mentions, so that every trace of it can be found."""
    return f"{os.environ.get('TEST_SANDBOX') or 'test'}-{uuid.uuid4().hex[:6]}"


def environment() -> dict[str, str]:
    """The caller's, without what chooses a sandbox or a cluster."""
    chosen = {"SANDBOX", "SANDBOX_ENTER", "SANDBOX_OUTSIDE", "MILLRACE_USE_CLUSTER", "KUBECONFIG"}
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    return {**kept, "PYTHONPATH": str(REPOSITORY / "dev")}


def argv(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sandbox", "--name", name, *arguments]


def run(name: str, *arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One command, whatever comes of it."""
    return subprocess.run(
        argv(name, *arguments),
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def succeed(name: str, *arguments: str, seconds: float = 120.0) -> str:
    """One command that has to end well; what it printed."""
    done = run(name, *arguments, seconds=seconds)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def running(name: str) -> dict[str, int]:
    """The components that run, and their pids, as `status` tells."""
    told = run(name, "status").stdout
    found = re.findall(r"^(\S+) +running \(pid (\d+)\)$", told, re.MULTILINE)
    return {component: int(pid) for component, pid in found}


def answers(name: str) -> bool:
    """Whether the API server is ready."""
    return run(name, "exec", "--", "kubectl", "get", "--raw", "/readyz").stdout == "ok"


def killed_half_way(
    name: str, *arguments: str, when: Callable[[], bool], seconds: float = WHOLE
) -> subprocess.Popen[bytes]:
    """Start a command, and kill it with no chance to clean up as soon as `when` is true."""
    with subprocess.Popen(
        argv(name, *arguments),
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + seconds
        # A tight loop, with no pause to speak of: half way is over in milliseconds.
        while not when() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        ended = process.poll()
        process.send_signal(signal.SIGKILL)
    assert ended is None, f"{' '.join(arguments)} ended with {ended} before it could be killed"
    return process
