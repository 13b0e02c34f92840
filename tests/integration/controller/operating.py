"""The operator as a process, beside a real API server and a real Pulsar, and what tests do with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

Manifest = dict[str, Any]


def kubectl(*arguments: str, stdin: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Operated:
    """Two namespaces that the operator watches; the first has the topics, both have a connection."""

    namespace: str
    other: str
    cluster_id: str
    log: Path

    def apply(self, kind: str, name: str, spec: Manifest, *, namespace: str | None = None) -> None:
        document = {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace or self.namespace},
            "spec": spec,
        }
        kubectl("apply", "-f", "-", stdin=json.dumps(document))

    def subscribe(self, name: str, topic: str, **spec: Any) -> None:
        basic = {"topicRef": {"name": topic}, "delivery": {"url": "http://nowhere.invalid/"}}
        self.apply("Subscription", name, basic | spec)

    def get(self, what: str, name: str, *, namespace: str | None = None) -> Manifest | None:
        text = kubectl(
            "get", what, name, "-n", namespace or self.namespace, "-o", "json", "--ignore-not-found"
        )
        found: Manifest | None = json.loads(text) if text.strip() else None
        return found

    def status(self, name: str, *, namespace: str | None = None) -> Manifest:
        found = self.get("msub", name, namespace=namespace)
        status: Manifest = (found or {}).get("status") or {}
        return status

    def condition(self, name: str, kind: str = "Ready", *, namespace: str | None = None) -> Manifest:
        conditions = self.status(name, namespace=namespace).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    async def reaches(self, name: str, reason: str, *, namespace: str | None = None) -> Manifest:
        """Wait for the reason of Ready; the condition."""
        await self.until(
            lambda: self.condition(name, namespace=namespace).get("reason") == reason,
            lambda: f"{name}: {self.condition(name, namespace=namespace)}",
        )
        return self.condition(name, namespace=namespace)

    async def until(self, condition: Callable[[], bool], describe: Callable[[], str] | None = None) -> None:
        await eventually(condition, timeout=40.0, interval=0.3, describe=describe)

    def hold(self, name: str, shard: int, pod: str, epoch: int, **counts: int) -> None:
        """Claim a shard as its pod would."""
        lease = self.get("lease", f"{name}-0-{shard}")
        assert lease is not None
        lease["spec"] = {"holderIdentity": pod, "leaseDurationSeconds": 10}
        annotations = {"millrace.dev/epoch": str(epoch)}
        annotations |= {f"millrace.dev/{key.replace('_', '-')}": str(value) for key, value in counts.items()}
        lease["metadata"]["annotations"] = annotations
        kubectl("replace", "-f", "-", stdin=json.dumps(lease))
