"""The operator as a process against a real API server and a real Pulsar, one place for each module."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes import client

from tests.integration.controller.adminproxy import AdminProxy
from tests.integration.controller.operating import Operated, kubectl
from tests.integration.controller.places import Place, open_place
from tests.support import pulsar as support

REPOSITORY = Path(__file__).parents[3]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
            if not support.available():
                item.add_marker(pytest.mark.skip("PULSAR_SERVICE_URL and PULSAR_ADMIN_URL are not set"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    api_client: client.ApiClient,
    definitions: client.ApiextensionsV1Api,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Place]:
    async with open_place(api_client, tmp_path_factory.mktemp("operators")) as place:
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncIterator[AdminProxy]:
    """Faults between the operator and Pulsar's admin API."""
    async with AdminProxy(support.credentials()) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def operated(
    definitions: client.ApiextensionsV1Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operated]:
    """An operator that watches two namespaces of this run's own, with a PulsarConnection in each."""
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
        "pulsarNamespaces": [support.NAMESPACE],
        "isDefault": True,
    }
    if "token" in data:
        reference = {"name": "pulsar"}
        spec |= {"auth": {"type": "Token"}, "adminSecretRef": reference, "clientSecretRef": reference}
    if "ca.crt" in data:
        spec["tls"] = {"caSecretRef": {"name": "pulsar"}}
    place.apply("PulsarConnection", "default", spec, namespace=namespace)
