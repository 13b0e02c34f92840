"""The operator as a process that watches two namespaces of this run's own."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from millrace.api.crds import KINDS, render
from tests.integration.controller.operating import Operated, kubectl
from tests.support import pulsar as real

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def installed() -> Iterator[None]:
    """The CRDs of the working tree; removed again if they were not there."""
    names = [kind.crd_name for kind in KINDS]
    # Those of an earlier run may still be going, and would take with them what this one makes.
    _await_deletion(name for name in names if _is_going(name))
    there = kubectl("get", "crd", "-o", "name")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin="---\n".join(render().values()))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in names))
    yield
    ours = [name for name in names if name not in there]
    for name in ours:
        kubectl("delete", "crd", name, "--wait=false")
    _await_deletion(ours)


def _is_going(name: str) -> bool:
    template = "{.metadata.deletionTimestamp}"
    return bool(kubectl("get", "crd", name, "--ignore-not-found", "-o", f"jsonpath={template}"))


def _await_deletion(names: Iterable[str]) -> None:
    for name in names:
        kubectl("wait", "--for=delete", f"crd/{name}", "--timeout=180s")


@pytest.fixture(scope="session")
def operated(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    if "KUBECONFIG" not in os.environ or not real.available():
        pytest.fail("run this with `python -m sandbox --name test exec -- pytest ...`")
    suffix = secrets.token_hex(4)
    log = tmp_path_factory.mktemp("operator") / "log"
    place = Operated(f"sub-{suffix}", f"sub-{suffix}-b", f"cluster-{suffix}", log)
    for namespace in (place.namespace, place.other):
        kubectl("create", "namespace", namespace)
        _connect(place, namespace)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "operator"),
        "MILLRACE_LEASE_NAMESPACE": place.namespace,
        "MILLRACE_WATCH_NAMESPACES": f"{place.namespace},{place.other}",
        "MILLRACE_CLUSTER_ID": place.cluster_id,
        "MILLRACE_IDENTITY": "test",
        "MILLRACE_LOG_FORMAT": "text",
        "MILLRACE_METRICS_PORT": str(port),
        "MILLRACE_IMAGE": "no-such-image:none",
        "MILLRACE_IMAGE_PULL_POLICY": "Never",
    }
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "millrace.controller"], env=environment, stderr=written, stdout=written
        )
    yield place
    for namespace in (place.namespace, place.other):
        kubectl("delete", "msub,ct", "--all", "-n", namespace, "--timeout=60s", check=False)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    for namespace in (place.namespace, place.other):
        kubectl("delete", "namespace", namespace, "--wait=false", check=False)


def _connect(place: Operated, namespace: str) -> None:
    files = {"token": os.environ.get("PULSAR_TOKEN_FILE"), "ca.crt": os.environ.get("PULSAR_CA_FILE")}
    data = {key: base64.b64encode(Path(file).read_bytes()).decode() for key, file in files.items() if file}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pulsar", "namespace": namespace},
        "data": data,
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(secret))
    spec: dict[str, object] = {
        "serviceUrl": os.environ["PULSAR_SERVICE_URL"],
        "adminUrl": os.environ["PULSAR_ADMIN_URL"],
        "pulsarNamespaces": [real.NAMESPACE],
        "isDefault": True,
    }
    if "token" in data:
        reference = {"name": "pulsar"}
        spec |= {"auth": {"type": "Token"}, "adminSecretRef": reference, "clientSecretRef": reference}
    if "ca.crt" in data:
        spec["tls"] = {"caSecretRef": {"name": "pulsar"}}
    place.apply("PulsarConnection", "default", spec, namespace=namespace)
