"""The operator under many CompositeTopics at once: how long, how many calls, how much memory; then at rest.

The figures are the leading replica's own counters, before and after. They count what it does for every object
of the cluster, so the cluster should have no other CompositeTopics and nobody else at work. Renewing the
Lease and the listings of the watch audit do not depend on the number of objects, and are given apart.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from demo.cluster import EXAMPLES, DemoError, is_ready, kubectl, what_it_waits_for

RELEASE_NAMESPACE = os.environ.get("MILLRACE_RELEASE_NAMESPACE", "millrace-system")
RELEASE = os.environ.get("MILLRACE_RELEASE", "millrace")
FINALIZER = "millrace.dev/cleanup"
API_CALLS_GOAL, PULSAR_CALLS_GOAL, AT_REST_GOAL = 6.0, 8.0, 1.0
Manifest = dict[str, Any]
Calls = Counter[str]


@dataclass(frozen=True, slots=True)
class Operator:
    """The pod that leads."""

    pod: str
    port: int
    service_account: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What the leader has counted so far."""

    started: float
    idle: bool
    resident_mebibytes: float
    cpu_seconds: float
    reconciles: Calls
    pulsar: Calls
    objects: Calls
    """Calls to the API server about objects."""
    standing: Calls
    """Calls to the API server that are made in any case: the Lease, the audit's listings."""


# Reading the operator


async def leading_operator() -> Operator:
    """Whom the Lease names."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
    pods = json.loads(await kubectl("get", "pods", "-n", RELEASE_NAMESPACE, "-l", selector, "-o", "json"))
    lease = json.loads(await kubectl("get", "lease", RELEASE, "-n", RELEASE_NAMESPACE, "-o", "json"))
    for pod in pods["items"]:
        if pod["metadata"]["name"] == lease["spec"].get("holderIdentity"):
            ports = pod["spec"]["containers"][0]["ports"]
            port = next(each["containerPort"] for each in ports if each["name"] == "metrics")
            return Operator(pod["metadata"]["name"], port, pod["spec"]["serviceAccountName"])
    raise DemoError(f"no pod in {RELEASE_NAMESPACE} leads: is the operator running?")


async def sample(operator: Operator) -> Sample:
    """Read its metrics, through the API server: pods need not be reachable from here."""
    path = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods/{operator.pod}:{operator.port}/proxy/metrics"
    single: dict[str, float] = {}
    reconciles, pulsar, objects, standing = Calls(), Calls(), Calls(), Calls()
    for family in text_string_to_metric_families(await kubectl("get", "--raw", path)):
        for name, labels, value, *_ in family.samples:
            match name:
                case "millrace_api_server_calls_total":
                    aside = labels["kind"] == "leases" or labels["verb"] == "list"
                    (standing if aside else objects)[f"{labels['verb']} {labels['kind']}"] += round(value)
                case "millrace_pulsar_admin_calls_total":
                    good = labels["status"].startswith("2")
                    what = labels["operation"] if good else f"{labels['operation']} {labels['status']}"
                    pulsar[what] += round(value)
                case "millrace_reconciles_total":
                    reconciles[f"{labels['kind']} {labels['outcome']}"] += round(value)
                case _ if not labels:
                    single[name] = value
    if not single["millrace_leading"]:
        raise DemoError(f"{operator.pod} no longer leads, so its counters say nothing; measure again")
    return Sample(
        started=single["process_start_time_seconds"],
        idle=not single["millrace_queue_depth"] and not single["millrace_workers_busy"],
        resident_mebibytes=single["process_resident_memory_bytes"] / 2**20,
        cpu_seconds=single["process_cpu_seconds_total"],
        reconciles=reconciles,
        pulsar=pulsar,
        objects=objects,
        standing=standing,
    )


async def sample_when_idle(operator: Operator, seconds: float = 60) -> Sample:
    """The events of a transition come after the status that we waited for: let it finish."""
    deadline = time.monotonic() + seconds
    while not (found := await sample(operator)).idle:
        if time.monotonic() > deadline:
            raise DemoError(f"{operator.pod} is not idle after {seconds:.0f} s: is somebody else at work?")
        await asyncio.sleep(0.2)
    return found


# What is measured on


async def apply(*manifests: Manifest) -> None:
    """All at once, by server-side apply."""
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    await kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(listed))


def connection(namespace: str, operator: Operator) -> list[Manifest]:
    """`examples/connection.yaml` for the Pulsar of this environment, its Secrets, and the right to read
    them.
    """
    example: Manifest = yaml.safe_load((EXAMPLES / "connection.yaml").read_text())
    example["metadata"]["namespace"] = namespace
    spec = example["spec"]
    spec |= {"serviceUrl": os.environ["PULSAR_SERVICE_URL"], "adminUrl": os.environ["PULSAR_ADMIN_URL"]}
    secrets: list[Manifest] = []

    def secret(reference: dict[str, str], key: str, file: str) -> None:
        data = {key: base64.b64encode(Path(file).read_bytes().strip()).decode()}
        metadata = {"name": reference["name"], "namespace": namespace}
        secrets.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    if token := os.environ.get("PULSAR_TOKEN_FILE"):
        secret(spec["adminSecretRef"], "token", token)
    else:
        del spec["auth"], spec["adminSecretRef"]
    if authority := os.environ.get("PULSAR_CA_FILE"):
        secret(spec["tls"]["caSecretRef"], "ca.crt", authority)
    else:
        del spec["tls"]
    group, named = "rbac.authorization.k8s.io", {"name": "millrace-credentials", "namespace": namespace}
    account = {
        "kind": "ServiceAccount",
        "name": operator.service_account,
        "namespace": RELEASE_NAMESPACE,
    }
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": named,
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": named,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": named["name"]},
        "subjects": [account],
    }
    return [*secrets, role, binding, example]


def topics(namespace: str, count: int, partitions: int) -> list[Manifest]:
    """CompositeTopics as most are: one storage topic, everything else left out."""
    return [
        {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": "CompositeTopic",
            "metadata": {"name": f"topic-{number:04d}", "namespace": namespace},
            "spec": {"pulsarNamespace": "public/default", "storageTopics": [{"partitions": partitions}]},
        }
        for number in range(count)
    ]


async def listed(namespace: str) -> list[Manifest]:
    """The CompositeTopics that are there."""
    items: list[Manifest] = json.loads(await kubectl("get", "--raw", collection(namespace)))["items"]
    return items


def collection(namespace: str) -> str:
    """The path of all CompositeTopics of a namespace: one request, where kubectl makes one an object."""
    return f"/apis/millrace.dev/v1alpha1/namespaces/{namespace}/compositetopics"


@asynccontextmanager
async def readiness(namespace: str, count: int) -> AsyncIterator[asyncio.Task[float]]:
    """A task that ends when so many are Ready, with the moment at which the last one was.

    By one watch. `kubectl wait` would look at them one after the other, five a second, and measure itself.
    """
    columns = '{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "get", "compositetopics", "--namespace", namespace, "--watch", f"-o=jsonpath={columns}"),
        stdout=asyncio.subprocess.PIPE,
    )

    async def follow() -> float:
        assert process.stdout is not None
        ready: set[bytes] = set()
        async for line in process.stdout:
            name, _, status = line.strip().partition(b" ")
            if status == b"True":
                ready.add(name)
            if len(ready) == count:
                return time.perf_counter()
        raise DemoError("the watch of kubectl ended")

    task = asyncio.create_task(follow())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def not_ready_in_time(namespace: str, seconds: float) -> DemoError:
    """How many are left, and what the first of them waits for."""
    there = await listed(namespace)
    statuses = [{**each.get("status", {}), "generation": each["metadata"]["generation"]} for each in there]
    waiting = [status for status in statuses if not is_ready(status)]
    example = what_it_waits_for(waiting[0]) if waiting else "all are now"
    return DemoError(f"{len(waiting)} of {len(there)} were not Ready after {seconds:.0f} s ({example})")


async def remove_topics(namespace: str, seconds: float = 600) -> None:
    """With their data, through the operator: so the finalizer has to be there before the deletion."""
    deadline = time.monotonic() + seconds
    manifests = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "metadata": {"name": each["metadata"]["name"], "namespace": namespace},
            "spec": {**each["spec"], "deletionPolicy": "Delete"},
        }
        for each in await listed(namespace)
    ]
    if not manifests:
        return
    await apply(*manifests)
    while any(FINALIZER not in each["metadata"].get("finalizers", []) for each in await listed(namespace)):
        await _pause(deadline, f"not every topic of {namespace} has its finalizer")
    await kubectl("delete", "--raw", collection(namespace))
    while await listed(namespace):
        await _pause(deadline, f"not every topic of {namespace} is deleted")


async def _pause(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise DemoError(f"{otherwise}, and it is left as it is: look at its conditions")
    await asyncio.sleep(0.5)


# Measuring


class Report:
    """Prints each figure as it is known, and remembers whether a goal was missed."""

    def __init__(self) -> None:
        self.all_met = True

    def tell(
        self, name: str, value: float, unit: str, goal: float | None = None, by: Calls | None = None
    ) -> None:
        """One line. `by` says what the value is made of, in calls all together."""
        line: dict[str, object] = {"measurement": "reconciling", "name": name, "value": round(value, 2)}
        line |= {"unit": unit, "goal": goal}
        if goal is not None:
            line["met"] = value <= goal
            self.all_met = self.all_met and value <= goal
        if by:
            line["by"] = dict(by.most_common())
        print(json.dumps(line), flush=True)


def since(before: Sample, after: Sample) -> tuple[Calls, Calls, Calls, Calls]:
    """What was counted between the two: objects, Pulsar, standing, reconciliations."""
    if before.started != after.started:
        raise DemoError("the operator was restarted meanwhile, so its counters say nothing; measure again")
    return (
        after.objects - before.objects,
        after.pulsar - before.pulsar,
        after.standing - before.standing,
        after.reconciles - before.reconciles,
    )


async def measure(options: argparse.Namespace) -> bool:
    """Create, count, rest, count, remove."""
    namespace, report = f"bench-{uuid.uuid4().hex[:8]}", Report()
    operator = await leading_operator()
    others = (await kubectl("get", "compositetopics", "--all-namespaces", "-o", "name")).split()
    if others:
        print(f"{len(others)} other CompositeTopics are there, and are counted along", file=sys.stderr)
    try:
        await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await apply(*connection(namespace, operator))
        await kubectl(
            *("wait", "pulsarconnections", "--all", "--namespace", namespace),
            *("--for=condition=Ready", "--timeout=60s"),
        )
        before = await sample_when_idle(operator)
        ready = await _create(operator, namespace, options, before, report)
        await _rest(operator, options, ready, report)
    finally:
        await remove_topics(namespace)
        await kubectl("delete", "namespace", namespace, "--timeout=120s")
    return report.all_met


async def _create(
    operator: Operator, namespace: str, options: argparse.Namespace, before: Sample, report: Report
) -> Sample:
    count = options.topics
    async with readiness(namespace, count) as all_ready:
        begin = time.perf_counter()
        await apply(*topics(namespace, count, options.partitions))
        applied = time.perf_counter() - begin
        try:
            seconds = await asyncio.wait_for(all_ready, options.timeout) - begin
        except TimeoutError:
            raise await not_ready_in_time(namespace, options.timeout) from None
    after = await sample_when_idle(operator)
    objects, pulsar, _, reconciles = since(before, after)
    report.tell("topics", count, "objects")
    report.tell("time_until_applied", applied, "s")
    report.tell("time_until_all_ready", seconds, "s")
    report.tell("reconciliations", reconciles.total() / count, "per object", by=reconciles)
    report.tell("api_server_calls", objects.total() / count, "per object", API_CALLS_GOAL, objects)
    report.tell("pulsar_admin_calls", pulsar.total() / count, "per object", PULSAR_CALLS_GOAL, pulsar)
    report.tell("operator_cpu", (after.cpu_seconds - before.cpu_seconds) / count * 1000, "ms per object")
    report.tell("operator_memory_before", before.resident_mebibytes, "MiB")
    report.tell("operator_memory_all_ready", after.resident_mebibytes, "MiB")
    return after


async def _rest(operator: Operator, options: argparse.Namespace, before: Sample, report: Report) -> None:
    begin = time.perf_counter()
    await asyncio.sleep(options.rest)
    after = await sample_when_idle(operator)
    minutes = (time.perf_counter() - begin) / 60
    objects, pulsar, standing, reconciles = since(before, after)
    if not any(what.startswith("CompositeTopic ") for what in reconciles):
        print("no topic was due for its resync meanwhile: --rest 660 shows what that costs", file=sys.stderr)
    unit, per = "per object and minute", options.topics * minutes
    report.tell("reconciliations_at_rest", reconciles.total() / per, unit, by=reconciles)
    report.tell("api_server_calls_at_rest", objects.total() / per, unit, AT_REST_GOAL, objects)
    report.tell("pulsar_admin_calls_at_rest", pulsar.total() / per, unit, AT_REST_GOAL, pulsar)
    report.tell("standing_api_server_calls", standing.total() / minutes, "per minute", by=standing)
    report.tell(
        "operator_cpu_at_rest", (after.cpu_seconds - before.cpu_seconds) / minutes * 1000, "ms per minute"
    )
    report.tell("operator_memory_at_rest", after.resident_mebibytes, "MiB")


def main() -> int:
    """Exit code 1 when a goal was missed or the measurement could not be made."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--topics", type=int, default=300, help="CompositeTopics, applied at once")
    parser.add_argument("--partitions", type=int, default=2, help="of each")
    parser.add_argument("--rest", type=float, default=120, help="seconds at rest; a resync is due every 600")
    parser.add_argument("--timeout", type=float, default=600, help="seconds until all must be Ready")
    try:
        return 0 if asyncio.run(measure(parser.parse_args())) else 1
    except DemoError as error:
        print(error, file=sys.stderr)
        return 1
