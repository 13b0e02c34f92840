"""The operator's pods on a real cluster: who leads, what they may do, what they say, and Pulsar gone."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from demo.cluster import DemoError
from tests.e2e import cluster
from tests.e2e.cluster import RELEASE, RELEASE_NAMESPACE, Manifest, sandbox
from tests.support.waiting import eventually

pytestmark = pytest.mark.e2e

SELECTOR = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
METRICS_PORT = 8080


@pytest.fixture(autouse=True)
async def replicas() -> AsyncIterator[None]:
    """Both replicas there before, and again after."""
    await cluster.operator_available()
    yield
    await cluster.operator_available()


async def leader() -> str:
    """Who holds the Lease; empty between two leaders."""
    lease = await cluster.get("lease", RELEASE, RELEASE_NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


async def leading_pod() -> str:
    """The pod that leads, once one does."""
    found = ""

    async def somebody_leads() -> bool:
        nonlocal found
        holder = await leader()
        found = next((pod for pod in await cluster.operator_pods() if pod == holder), "")
        return bool(found)

    await eventually(somebody_leads, timeout=60)
    return found


async def live_pods() -> list[Manifest]:
    told = await cluster.kubectl("get", "pods", "-n", RELEASE_NAMESPACE, "-l", SELECTOR, "-o", "json")
    return [item for item in json.loads(told)["items"] if "deletionTimestamp" not in item["metadata"]]


async def python_in(pod: str, program: str) -> str:
    return await cluster.kubectl("exec", "-n", RELEASE_NAMESPACE, pod, "--", "python", "-c", program)


# Leading


async def test_the_standby_leads_when_the_leading_pod_is_killed(namespace: str) -> None:
    killed = await leading_pod()
    await cluster.kubectl(
        "delete", "pod", killed, "-n", RELEASE_NAMESPACE, "--grace-period=0", "--force", "--wait=false"
    )
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)
    assert await leading_pod() != killed


async def test_a_second_pod_is_not_evicted_while_the_first_is_missing(namespace: str) -> None:
    async def one_may_go() -> bool:
        budget = await cluster.get("poddisruptionbudget", RELEASE, RELEASE_NAMESPACE)
        status = budget.get("status", {})
        return bool(status.get("disruptionsAllowed") == 1 and not status.get("disruptedPods"))

    await eventually(one_may_go, timeout=60)
    first = await leading_pod()
    (second,) = [pod for pod in await cluster.operator_pods() if pod != first]
    await evict(first)
    with pytest.raises(DemoError, match="disruption budget"):
        await evict(second)
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)
    assert second in await cluster.operator_pods()


async def evict(pod: str) -> None:
    """What `kubectl drain` asks for."""
    metadata = {"name": pod, "namespace": RELEASE_NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods/{pod}/eviction"
    await cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


# Rights


@pytest.fixture
async def restricted() -> AsyncIterator[str]:
    """A namespace that takes only pods that are restricted, in the sense of the Pod Security Standards."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    yield name
    await cluster.kubectl("delete", "namespace", name, "--wait=false")


async def test_the_pods_are_restricted_ones(restricted: str) -> None:
    pods = await live_pods()
    assert len(pods) == 2
    for pod in pods:
        await would_be_taken(restricted, pod["spec"])
        spec = json.loads(json.dumps(pod["spec"]))
        spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(DemoError, match="PodSecurity"):
            await would_be_taken(restricted, spec)


async def would_be_taken(namespace: str, spec: dict[str, Any]) -> None:
    """Admission judges the pod as it runs now; where and as whom it runs does not matter there."""
    bound = ("nodeName", "serviceAccount", "serviceAccountName", "automountServiceAccountToken")
    copied = {key: value for key, value in spec.items() if key not in bound}
    # Another account's token cannot be mounted, and admission adds the right one by itself.
    copied["volumes"] = [each for each in spec["volumes"] if "projected" not in each]
    kept = {each["name"] for each in copied["volumes"]}
    copied["containers"] = [
        {**each, "volumeMounts": [mount for mount in each["volumeMounts"] if mount["name"] in kept]}
        for each in spec["containers"]
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "copy", "namespace": namespace},
        "spec": {**copied, "automountServiceAccountToken": False},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    account["metadata"] |= {"namespace": namespace}  # type: ignore[operator]
    await cluster.apply(account)
    await cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


async def test_the_process_has_no_privilege_at_all() -> None:
    status_of_the_process = "print(open('/proc/1/status').read())"
    for pod in await cluster.operator_pods():
        lines = (await python_in(pod, status_of_the_process)).splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert fields["Uid"].split() == ["65532"] * 4
        assert fields["Gid"].split() == ["65532"] * 4
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(fields[capabilities], 16) == 0, capabilities
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2", "a filter is in force"


@pytest.mark.parametrize("place", ["/", "/opt/millrace/src/millrace", "/etc", "/var", "/opt/millrace/bin"])
async def test_nothing_in_the_image_can_be_written(place: str) -> None:
    pod = (await cluster.operator_pods())[0]
    with pytest.raises(DemoError, match="Read-only file system"):
        await python_in(pod, f"open('{place}/written', 'w')")
    await python_in(pod, "open('/tmp/written', 'w').write('it is the image that is read-only')")


# What it tells


async def test_every_line_of_the_log_is_json_and_names_its_object(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)
    wanted = f"CompositeTopic {namespace}/orders"
    told: list[dict[str, str]] = []

    async def the_leader_told_of_it() -> bool:
        told.clear()
        for pod in await cluster.operator_pods():
            log = await cluster.kubectl("logs", "-n", RELEASE_NAMESPACE, pod, "--tail=-1")
            told.extend(json.loads(line) for line in log.splitlines())
        return any(line.get("object") == wanted for line in told)

    await eventually(the_leader_told_of_it, timeout=30)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in told)
    about = [line["message"] for line in told if line.get("object") == wanted]
    assert any("Ready" in message for message in about), about


async def test_the_metrics_say_who_leads_and_what_was_done(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)
    leading = await leading_pod()
    for pod in await cluster.operator_pods():
        metrics = await scraped(f"pods/{pod}:{METRICS_PORT}")
        assert metrics["millrace_leading"] == (1.0 if pod == leading else 0.0)
    metrics = await scraped(f"pods/{leading}:{METRICS_PORT}")
    assert metrics['millrace_reconciles_total{kind="CompositeTopic",outcome="done"}'] >= 1
    assert not metrics.get('millrace_reconciles_total{kind="CompositeTopic",outcome="error"}')


async def test_the_metrics_service_leads_to_the_operator() -> None:
    assert "millrace_leading" in await scraped(f"services/{RELEASE}-metrics:metrics")


async def scraped(target: str) -> dict[str, float]:
    """The metrics, through the API server's proxy."""
    path = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/{target}/proxy/metrics"
    lines = (await cluster.kubectl("get", "--raw", path)).splitlines()
    samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


# Without Pulsar


@pytest.mark.skipif(
    os.environ.get("MILLRACE_USE_CLUSTER", "0") not in {"", "0"}, reason="stops Pulsar: only in a sandbox"
)
async def test_without_pulsar_objects_wait_and_go_on_by_themselves_when_it_is_back(
    namespace: str,
) -> None:
    await connection_says(namespace, "Ready", "Ready")
    await sandbox("kill", "pulsar")
    try:
        await cluster.apply(cluster.composite_topic("orders", namespace, 2))
        await cluster.condition("orders", namespace, "Reconciling", "WaitingForPulsar", seconds=90)
        # A connection that was well is looked at now and then: a changed annotation makes it now.
        await cluster.kubectl("annotate", "pulsarconnection", "pulsar", "-n", namespace, "example.com/look=1")
        await connection_says(namespace, "Reconciling", "WaitingForPulsar")
    finally:
        await sandbox("restart", "pulsar")
    await cluster.ready("orders", namespace, seconds=180)
    await connection_says(namespace, "Ready", "Ready")


async def connection_says(namespace: str, kind: str, reason: str) -> None:
    """Wait until the connection's condition is true for this reason."""
    last: list[Manifest] = []

    async def it_says_so() -> bool:
        nonlocal last
        status = (await cluster.get("pulsarconnection", "pulsar", namespace)).get("status", {})
        last = status.get("conditions", [])
        return any((each["type"], each["status"], each["reason"]) == (kind, "True", reason) for each in last)

    await eventually(it_says_so, timeout=180, describe=lambda: f"wanted {kind}/{reason}, has {last}")
