"""The chart installed on the sandbox as a platform team would do it: Helm, Secrets, and a default connection.

Pulsar runs beside the cluster. A Service without a selector gives it a name inside, so that examples read as
they would on any cluster: pulsar.pulsar.svc.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from sandbox import builds, controlplane, images, pulsar
from sandbox.layout import NODE_IP, REPOSITORY, Layout, SandboxError
from sandbox.pulsar.configuration import HTTP_PORT, HTTPS_PORT, PLAIN_PORT, TLS_PORT

NAME = "millrace"
NAMESPACE = "millrace-system"
PULSAR_NAMESPACE = "pulsar"
PULSAR_HOST = f"pulsar.{PULSAR_NAMESPACE}.svc"
CONNECTED_NAMESPACES = ("default", "demo")
"""Where the default connection is made, together with the Secrets that it names."""
WAIT_SECONDS = 120

_PORTS = {"pulsar": PLAIN_PORT, "pulsar-ssl": TLS_PORT, "http": HTTP_PORT, "https": HTTPS_PORT}


def install(layout: Layout) -> None:
    """Install the chart, or bring it up to date, and wait until the operator is available."""
    image = images.ensure_project(layout)
    _apply(layout, [_namespace(name) for name in (NAMESPACE, PULSAR_NAMESPACE, *CONNECTED_NAMESPACES)])
    _apply(layout, [*_pulsar_service(), *_secrets(layout)])
    _helm(layout, image)


def uninstall(layout: Layout) -> None:
    """Remove the release. The custom resource definitions and their objects stay, as on any cluster."""
    _run_helm(layout, "uninstall", NAME, "--namespace", NAMESPACE, "--ignore-not-found", "--wait")


def values(image: images.Image, layout: Layout) -> dict[str, Any]:
    """The chart's values in a sandbox."""
    return {
        "image": {"repository": image.repository, "tag": image.tag, "pullPolicy": "Never"},
        "clusterId": f"sandbox-{layout.name}",
        "defaultConnection": {
            "enabled": True,
            "namespaces": list(CONNECTED_NAMESPACES),
            "serviceUrl": f"pulsar+ssl://{PULSAR_HOST}:{TLS_PORT}",
            "adminUrl": f"https://{PULSAR_HOST}:{HTTPS_PORT}",
            "pulsarNamespaces": ["public/default"],
            "auth": {"type": "Token"},
            "adminSecretRef": {"name": "pulsar-admin"},
            "clientSecretRef": {"name": "pulsar-client"},
            "tls": {"caSecretRef": {"name": "pulsar-ca"}},
        },
    }


def _helm(layout: Layout, image: images.Image) -> None:
    _forget_interrupted(layout)
    try:
        _run_helm(
            layout,
            *("upgrade", "--install", NAME, str(REPOSITORY / "charts" / "millrace")),
            *("--namespace", NAMESPACE, "--values", "-"),
            *("--wait", "--timeout", f"{WAIT_SECONDS}s"),
            stdin=json.dumps(values(image, layout)),
        )
    except SandboxError as failure:
        raise SandboxError(f"{failure}\n{_what_pods_say(layout)}") from None


def _forget_interrupted(layout: Layout) -> None:
    """Take away the record of a Helm that was killed: to the next one it would be at work for ever.

    What it had made already carries the release's name, so the next one takes it over.
    """
    unfinished = f"owner=helm,name={NAME},status in (pending-install,pending-upgrade,pending-rollback)"
    controlplane.kubectl(layout, "delete", "secret", "--namespace", NAMESPACE, "--selector", unfinished)


def _run_helm(layout: Layout, *arguments: str, stdin: str | None = None) -> str:
    # Helm's own files belong to the sandbox too, and go with it.
    places = {
        f"HELM_{kind}_HOME": str(layout.state / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
    }
    # It ends with this process: left alone, it would be in the way of the next one.
    mortal = ["setpriv", "--pdeathsig", "KILL"]
    places |= {"KUBECONFIG": str(layout.kubeconfig), "KUBECACHEDIR": str(layout.kubectl_cache)}
    result = subprocess.run(
        [*layout.enter(), *mortal, str(builds.program("helm")), *arguments],
        input=stdin,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise SandboxError(f"`helm {' '.join(arguments[:2])}` failed: {result.stderr.strip()}")
    return result.stdout


def _what_pods_say(layout: Layout) -> str:
    """Helm only says that it waited in vain; the reason is in the pods."""
    told = []
    selector = f"--selector=app.kubernetes.io/instance={NAME}"
    for arguments in (
        ("get", "pods", "--output=wide"),
        ("logs", selector, "--tail=15", "--prefix", "--all-containers"),
        ("get", "events", "--sort-by=.lastTimestamp"),
    ):
        try:
            lines = controlplane.kubectl(layout, "--namespace", NAMESPACE, *arguments).splitlines()[-30:]
        except SandboxError as failure:
            lines = str(failure).splitlines()
        told += [f"  kubectl {' '.join(arguments)}:", *(f"  | {line}" for line in lines)]
    return "\n".join(told)


def _apply(layout: Layout, items: list[dict[str, Any]]) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    controlplane.kubectl(layout, "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=listed)


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _pulsar_service() -> list[dict[str, Any]]:
    ports = [{"name": name, "port": port} for name, port in _PORTS.items()]
    metadata = {"name": "pulsar", "namespace": PULSAR_NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "pulsar"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        },
    ]


def _secrets(layout: Layout) -> list[dict[str, Any]]:
    broker = pulsar.endpoints(layout)
    return [
        _secret(namespace, name, key, file)
        for namespace in CONNECTED_NAMESPACES
        for name, key, file in (
            ("pulsar-admin", "token", broker.operator_token_file),
            ("pulsar-client", "token", broker.client_token_file),
            ("pulsar-ca", "ca.crt", broker.ca_file),
        )
    ]


def _secret(namespace: str, name: str, key: str, file: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: base64.b64encode(file.read_bytes()).decode()},
    }
