"""What the e2e tests do to a cluster, as a person would: kubectl, and nothing that only a test could do."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from demo.cluster import delete_with_data, is_ready, kubectl, what_it_waits_for
from millrace.pulsar.admin import Admin
from tests.support import pulsar as support
from tests.support.waiting import eventually

RELEASE_NAMESPACE = os.environ.get("MILLRACE_RELEASE_NAMESPACE", "millrace-system")
RELEASE = os.environ.get("MILLRACE_RELEASE", "millrace")
Manifest = dict[str, Any]


async def apply(*manifests: Manifest) -> None:
    """kubectl apply."""
    await kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    )


def connection_manifests(namespace: str) -> list[Manifest]:
    """A PulsarConnection as `examples/connection.yaml` has it, and the right to read its Secrets."""
    token = Path(os.environ["PULSAR_TOKEN_FILE"]).read_bytes()
    authority = Path(os.environ["PULSAR_CA_FILE"]).read_bytes()

    def secret(name: str, key: str, value: bytes) -> Manifest:
        data = {key: base64.b64encode(value.strip()).decode()}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": data,
        }

    access = {"name": "millrace-credentials", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    return [
        secret("pulsar-admin", "token", token),
        secret("pulsar-client", "token", token),
        secret("pulsar-ca", "ca.crt", authority),
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": access,
            "rules": [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": access,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "millrace-credentials"},
            "subjects": [{"kind": "ServiceAccount", "name": RELEASE, "namespace": RELEASE_NAMESPACE}],
        },
        {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": "PulsarConnection",
            "metadata": {"name": "pulsar", "namespace": namespace},
            "spec": {
                "serviceUrl": os.environ["PULSAR_SERVICE_URL"],
                "adminUrl": os.environ["PULSAR_ADMIN_URL"],
                "pulsarNamespaces": ["public/default"],
                "isDefault": True,
                "auth": {"type": "Token"},
                "adminSecretRef": {"name": "pulsar-admin"},
                "clientSecretRef": {"name": "pulsar-client"},
                "tls": {"caSecretRef": {"name": "pulsar-ca"}},
            },
        },
    ]


async def create_connected_namespace(name: str) -> None:
    """A namespace whose topics can reach Pulsar."""
    await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await apply(*connection_manifests(name))


async def remove_namespace_with_data(name: str) -> None:
    """Ask for the data to go as well, then delete the namespace and see it go."""
    for kind in ("subscription", "compositetopic"):  # in this order: cursors are on the topics
        names = "jsonpath={.items[*].metadata.name}"
        for found in (await kubectl("get", f"{kind}.millrace.dev", "-n", name, "-o", names)).split():
            await delete_with_data(kind, found, name)
    await kubectl("delete", "namespace", name, "--timeout=120s")


def composite_topic(name: str, namespace: str, *partitions: int, pointer: int = 0, **spec: Any) -> Manifest:
    """A CompositeTopic with one storage topic per partition count."""
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "CompositeTopic",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "pulsarNamespace": "public/default",
            "storageTopics": [{"partitions": count} for count in partitions],
            "producePointer": pointer,
            **spec,
        },
    }


async def get(kind: str, name: str, namespace: str) -> Manifest:
    """One object."""
    document: Manifest = json.loads(await kubectl("get", kind, name, "-n", namespace, "-o", "json"))
    return document


async def status(name: str, namespace: str, *, kind: str = "ct") -> Manifest:
    """The status of an object, with the generation of its spec beside it."""
    document = await get(kind, name, namespace)
    return {"generation": document["metadata"]["generation"], **document.get("status", {})}


async def ready(name: str, namespace: str, seconds: float = 90.0, *, kind: str = "ct") -> Manifest:
    """Wait until the object is Ready for its newest generation."""
    last: Manifest = {}

    async def is_ready_now() -> bool:
        nonlocal last
        last = await status(name, namespace, kind=kind)
        return is_ready(last)

    await eventually(is_ready_now, timeout=seconds, describe=lambda: what_it_waits_for(last))
    return last


async def condition(
    name: str, namespace: str, type_: str, reason: str, seconds: float = 60.0, *, kind: str = "ct"
) -> Manifest:
    """Wait until a condition is true for this reason."""
    last: Manifest = {}

    async def is_so() -> bool:
        nonlocal last
        last = await status(name, namespace, kind=kind)
        return any(
            item["type"] == type_ and item["status"] == "True" and item["reason"] == reason
            for item in last.get("conditions", [])
        )

    await eventually(
        is_so, timeout=seconds, describe=lambda: f"wanted {type_}/{reason}, has {last.get('conditions')}"
    )
    return last


def admin() -> Admin:
    """Pulsar's admin API, to look at what the operator did and to do what an administrator would."""
    return Admin(support.credentials())


async def operator_pods() -> list[str]:
    """The names of the operator's pods that are not on their way out."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/name=millrace"
    document = json.loads(await kubectl("get", "pods", "-n", RELEASE_NAMESPACE, "-l", selector, "-o", "json"))
    return [
        item["metadata"]["name"] for item in document["items"] if "deletionTimestamp" not in item["metadata"]
    ]


async def kill_operator() -> None:
    """Every replica at once, without a chance to clean up."""
    pods = await operator_pods()
    await kubectl(
        "delete", "pod", *pods, "-n", RELEASE_NAMESPACE, "--grace-period=0", "--force", "--wait=false"
    )


async def operator_available(seconds: str = "120s") -> None:
    """Wait for the operator's Deployment."""
    await kubectl(
        "rollout", "status", f"deployment/{RELEASE}", "-n", RELEASE_NAMESPACE, f"--timeout={seconds}"
    )


async def sandbox(*arguments: str) -> None:
    """What only the sandbox can do: kill and restart the parts that a cluster stands on."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "sandbox", *arguments)
    assert await process.wait() == 0, f"sandbox {' '.join(arguments)} failed"


__all__ = [
    "admin",
    "apply",
    "composite_topic",
    "condition",
    "create_connected_namespace",
    "get",
    "kill_operator",
    "kubectl",
    "operator_available",
    "operator_pods",
    "ready",
    "remove_namespace_with_data",
    "sandbox",
    "status",
]
