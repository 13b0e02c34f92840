"""The endpoint of a Subscription: a pod that records what it gets, and the judgement of what it got.

It runs from the image that the operator runs from, and is reached through the API server, so that it works on
any cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.cluster import DemoError, kubectl
from millrace.core.promise import PromiseChecker

PROGRAM = Path(__file__).with_name("recorder.py")
PORT = 8080
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A recorder that runs in a namespace, under the name of its Service."""

    namespace: str
    name: str

    @property
    def url(self) -> str:
        """As the pods of the namespace reach it."""
        return f"http://{self.name}:{PORT}/events"

    async def start(self) -> None:
        """Run it anew, with an empty memory."""
        await self.remove()
        image, policy = await _operator_image()
        items = {"apiVersion": "v1", "kind": "List", "items": self._manifests(image, policy)}
        await kubectl("apply", "-f", "-", stdin=json.dumps(items))
        await kubectl("wait", f"pod/{self.name}", *self._where, "--for=condition=Ready", "--timeout=60s")

    async def remove(self) -> None:
        """Whatever there is of it."""
        kinds = f"pod/{self.name}", f"service/{self.name}", f"configmap/{self.name}-recorder"
        await kubectl("delete", *kinds, *self._where, "--ignore-not-found", "--grace-period=1")

    async def answer(self, rules: dict[str, Record]) -> None:
        """Answer so from now on; `recorder` says what rules are. Groups without a rule are answered 200."""
        await kubectl("create", "--raw", f"{self._proxy}/rules", "-f", "-", stdin=json.dumps(rules))

    async def records(self, first: int) -> tuple[list[Record], list[str], int]:
        """What came from the record of this number on, all overlaps, and the number to ask with next."""
        page = json.loads(await kubectl("get", "--raw", f"{self._proxy}/records?from={first}"))
        return page["records"], page["overlaps"], page["next"]

    @property
    def _where(self) -> tuple[str, str]:
        return "--namespace", self.namespace

    @property
    def _proxy(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.name}:{PORT}/proxy"

    def _manifests(self, image: str, policy: str) -> list[Record]:
        labels = {"app.kubernetes.io/name": "recorder", "app.kubernetes.io/instance": self.name}

        def of(kind: str, name: str, **rest: Any) -> Record:
            metadata = {"name": name, "namespace": self.namespace, "labels": labels}
            return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}

        container = {
            "name": "recorder",
            "image": image,
            "imagePullPolicy": policy,
            "command": ["python", "/recorder/recorder.py"],
            "ports": [{"containerPort": PORT}],
            "readinessProbe": {
                "httpGet": {"path": "/records?from=0", "port": PORT},
                "periodSeconds": 1,
                "timeoutSeconds": 5,
            },
            "volumeMounts": [{"name": "program", "mountPath": "/recorder"}],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
        }
        pod = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "program", "configMap": {"name": f"{self.name}-recorder"}}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
        }
        return [
            of("ConfigMap", f"{self.name}-recorder", data={"recorder.py": PROGRAM.read_text()}),
            of("Service", self.name, spec={"selector": labels, "ports": [{"port": PORT}]}),
            of("Pod", self.name, spec=pod),
        ]


async def _operator_image() -> tuple[str, str]:
    """The image of the operator, and how it is pulled: whatever the installation, nodes can get that one."""
    label = "app.kubernetes.io/name=millrace,app.kubernetes.io/component=operator"
    found = json.loads(await kubectl("get", "deployments", "-A", "-l", label, "-o", "json"))["items"]
    if not found:
        raise DemoError("no operator is installed: there is no Deployment with its labels")
    container = found[0]["spec"]["template"]["spec"]["containers"][0]
    return container["image"], container["imagePullPolicy"]


@dataclass(slots=True)
class Deliveries:
    """What an endpoint has got of the groups that begin so, judged as it comes."""

    endpoint: Endpoint
    checker: PromiseChecker
    prefix: str = ""
    statuses: Counter[int] = field(default_factory=Counter)
    """Requests by what was answered."""
    taken: Counter[str] = field(default_factory=Counter)
    """First deliveries by group."""
    newest: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """By group, the newest epoch that delivered."""
    stale: list[str] = field(default_factory=list)
    """Groups of which an owner delivered after a newer one had."""
    times: list[float] = field(default_factory=list)
    """When requests came, in seconds since 1970."""
    overlaps: list[str] = field(default_factory=list)
    others: list[Record] = field(default_factory=list)
    """Requests whose body is no numbered message."""
    _next: int = 0

    @property
    def failures(self) -> int:
        """Requests that were not answered with a 2xx."""
        return sum(count for status, count in self.statuses.items() if not 200 <= status <= 299)

    def missing_of(self, group: str) -> int:
        """How many of a group were sent and not taken yet."""
        return self.checker.verdict().missing.get(group, 0)

    async def look(self) -> None:
        """Judge what came since the last look."""
        while True:
            records, overlaps, following = await self.endpoint.records(self._next)
            self.overlaps = [group for group in overlaps if group.startswith(self.prefix)]
            if following == self._next:
                return
            self._next = following
            for record in records:
                if record["group"].startswith(self.prefix):
                    self._take(record)

    async def follow(self, every: float = 0.5) -> None:
        """Look now and then, for ever. The API server may be away for a while; nothing is missed by that."""
        while True:
            with contextlib.suppress(DemoError):
                await self.look()
            await asyncio.sleep(every)

    def _take(self, record: Record) -> None:
        group, epoch = record["group"], record["epoch"]
        self.statuses[record["status"]] += 1
        self.times.append(record["at"])
        if epoch < self.epochs.setdefault(group, epoch):
            self.stale.append(group)
        self.epochs[group] = epoch
        if "number" not in record:
            self.others.append(record)
        elif 200 <= record["status"] <= 299:
            number = record["number"]
            self.checker.deliver(group, number)
            if number > self.newest.get(group, -1):
                self.newest[group] = number
                self.taken[group] += 1
