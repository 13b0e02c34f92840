"""etcd, the API server, the controller manager and the scheduler, as processes in the sandbox's namespace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_network
from ssl import CERT_NONE, create_default_context
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from sandbox import builds, netns, pki, processes
from sandbox.layout import CLUSTER_DOMAIN, NODE_IP, POD_CIDR, SERVICE_CIDR, Layout, SandboxError
from sandbox.processes import Daemon

API_SERVICE_IP = str(ip_network(SERVICE_CIDR)[1])
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def daemons(layout: Layout) -> list[Daemon]:
    """In the order in which they start. Asking writes the certificates and configuration that they read."""
    return [_etcd(layout), _api_server(layout), _controller_manager(layout), _scheduler(layout)]


def start(layout: Layout) -> None:
    """Start what does not run yet, and wait until all of it answers."""
    pki.kubeconfig(layout, layout.kubeconfig)
    for daemon in daemons(layout):
        processes.start(layout, daemon)


def kubectl(layout: Layout, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as the administrator; what it answers, or an error with what it said."""
    command = [
        *layout.enter(),
        str(builds.program("kubectl")),
        f"--kubeconfig={layout.kubeconfig}",
        f"--cache-dir={layout.kubectl_cache}",
        *arguments,
    ]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SandboxError(f"`kubectl {' '.join(arguments)}` failed: {result.stderr.strip()}")
    return result.stdout


def succeeds(*command: str) -> bool:
    """Whether a command ends with exit code 0."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def get(layout: Layout, path: str) -> dict[str, Any] | None:
    """An object as the API server has it, or None if it is not there or nobody answers."""

    def ask() -> dict[str, Any] | None:
        context = create_default_context(cafile=str(pki.authority(layout).certificate))
        headers = {"Authorization": f"Bearer {pki.admin_token(layout)}"}
        request = Request(f"https://{NODE_IP}:6443{path}", headers=headers)
        # Without the machine's proxies: they do not lead into the namespace.
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
        try:
            with opener.open(request, timeout=5) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except (OSError, HTTPException, ValueError):
            return None

    return netns.call_inside(layout, ask)


def answers(
    layout: Layout, port: int, path: str, *, host: str = "127.0.0.1", tls: bool = True
) -> Callable[[], bool]:
    """A check that asks for a path inside the namespace, and is content with status 200."""

    def ask() -> bool:
        try:
            connection = _connection(host, port, tls=tls)
            try:
                connection.request("GET", path)
                return connection.getresponse().status == 200
            finally:
                connection.close()
        except (OSError, HTTPException):
            return False

    return lambda: netns.call_inside(layout, ask)


def _connection(host: str, port: int, *, tls: bool) -> HTTPConnection:
    if not tls:
        return HTTPConnection(host, port, timeout=5)
    # Components serve their health with certificates that they sign themselves.
    context = create_default_context()
    context.check_hostname = False
    context.verify_mode = CERT_NONE
    return HTTPSConnection(host, port, timeout=5, context=context)


def _etcd(layout: Layout) -> Daemon:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return Daemon(
        name="etcd",
        argv=[
            str(builds.program("etcd")),
            "--name=sandbox",
            f"--data-dir={layout.state / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=sandbox={peer}",
            # The sandbox is thrown away with the machine; waiting for the disk would only make it slow.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        ready=answers(layout, 2379, "/health", tls=False),
    )


def _api_server(layout: Layout) -> Daemon:
    server = pki.issue(
        layout, "kube-apiserver", common_name="kube-apiserver", names=pki.api_server_names(API_SERVICE_IP)
    )
    to_kubelet = pki.issue(
        layout,
        "apiserver-to-kubelet",
        common_name="kube-apiserver-kubelet-client",
        organization="system:masters",
    )
    tokens = layout.pki / "tokens.csv"
    tokens.write_text(f'{pki.admin_token(layout)},admin,admin,"system:masters"\n')
    ca = pki.authority(layout).certificate
    signing_key = pki.service_account_key(layout)
    return Daemon(
        name="kube-apiserver",
        argv=[
            str(builds.program("kube-apiserver")),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={NODE_IP}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--cert-dir={layout.run / 'apiserver'}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={ca}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
            f"--service-account-key-file={signing_key}",
            f"--service-account-signing-key-file={signing_key}",
            f"--kubelet-certificate-authority={ca}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            # Otherwise logs and exec would look the node's name up in DNS.
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--profiling=false",
        ],
        ready=answers(layout, 6443, "/readyz", host=NODE_IP),
    )


def _controller_manager(layout: Layout) -> Daemon:
    config = pki.component_kubeconfig(
        layout, "kube-controller-manager", user="system:kube-controller-manager"
    )
    ca = pki.authority(layout)
    return Daemon(
        name="kube-controller-manager",
        argv=[
            str(builds.program("kube-controller-manager")),
            f"--kubeconfig={config}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki.service_account_key(layout)}",
            f"--root-ca-file={ca.certificate}",
            f"--cluster-signing-cert-file={ca.certificate}",
            f"--cluster-signing-key-file={ca.key}",
            # The node's bridge hands out addresses of the whole range by itself.
            "--allocate-node-cidrs=false",
            f"--cluster-cidr={POD_CIDR}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--profiling=false",
        ],
        ready=answers(layout, 10257, "/healthz"),
    )


def _scheduler(layout: Layout) -> Daemon:
    config = pki.component_kubeconfig(layout, "kube-scheduler", user="system:kube-scheduler")
    return Daemon(
        name="kube-scheduler",
        argv=[
            str(builds.program("kube-scheduler")),
            f"--kubeconfig={config}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--profiling=false",
        ],
        ready=answers(layout, 10259, "/healthz"),
    )
