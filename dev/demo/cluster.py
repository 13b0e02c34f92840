"""The demonstration's view of Kubernetes: what a person would do, with kubectl and `examples/`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class DemoError(Exception):
    """The demonstration cannot go on; the message says why and where to look."""


async def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        *arguments,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate(stdin.encode() if stdin is not None else None)
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise DemoError(f"kubectl {' '.join(arguments)}: {err.decode().strip()}")
    return out.decode()


async def apply_example(name: str, namespace: str) -> None:
    """Apply one of the examples to a namespace."""
    await kubectl("apply", "--namespace", namespace, "--filename", str(EXAMPLES / name))


async def status(name: str, namespace: str, *, kind: str = "compositetopic") -> dict[str, Any]:
    """The status of an object of ours, empty before the operator has seen it."""
    document = json.loads(
        await kubectl("get", f"{kind}.millrace.dev", name, "--namespace", namespace, "-o", "json")
    )
    found: dict[str, Any] = document.get("status", {})
    found["generation"] = document["metadata"]["generation"]
    return found


def is_ready(status: dict[str, Any]) -> bool:
    """Ready for the newest generation of the spec (an older Ready says nothing)."""
    return any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration") == status["generation"]
        for condition in status.get("conditions", [])
    )


def what_it_waits_for(status: dict[str, Any]) -> str:
    """The sentence of the condition that explains why it is not Ready yet."""
    for wanted in ("Stalled", "Reconciling", "Ready"):
        for condition in status.get("conditions", []):
            if condition["type"] == wanted and (wanted == "Ready" or condition["status"] == "True"):
                return f"{condition['reason']}: {condition['message']}"
    return "no condition yet: is the operator running?"


async def wait_until_ready(
    name: str, namespace: str, seconds: float, *, kind: str = "compositetopic"
) -> dict[str, Any]:
    """Poll until the object is Ready; past the limit say what it waits for."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = await status(name, namespace, kind=kind)
        if is_ready(found):
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise DemoError(
                f"{namespace}/{name} was not Ready after {seconds:.0f} s ({what_it_waits_for(found)})"
            )
        await asyncio.sleep(0.3)


async def delete_with_data(kind: str, name: str, namespace: str, seconds: float = 60.0) -> None:
    """Delete an object of ours with what it has in Pulsar, paused or not.

    An object that goes before the operator has seen the new policy goes by the old one: its finalizer tells.
    """
    where = (f"{kind}.millrace.dev", name, "--namespace", namespace)
    patch = '{"spec":{"deletionPolicy":"Delete"},"metadata":{"annotations":{"millrace.dev/paused":null}}}'
    await kubectl("patch", *where, "--type", "merge", "-p", patch)
    deadline = asyncio.get_running_loop().time() + seconds
    while not (await kubectl("get", *where, "-o", "jsonpath={.metadata.finalizers}")).strip():
        if asyncio.get_running_loop().time() > deadline:
            raise DemoError(f"{namespace}/{name}: the operator did not take note of deletionPolicy Delete")
        await asyncio.sleep(0.2)
    await kubectl("delete", *where, "--timeout=120s")
