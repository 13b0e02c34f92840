"""What makes a process on the node the cluster's DNS: a selector-less Service that leads to it."""

from __future__ import annotations

import json
from typing import Any

from sandbox import controlplane
from sandbox.layout import DNS_IP, NODE_IP, Layout

DNS_USER = "system:coredns"
_NAME = "kube-dns"
_NAMESPACE = "kube-system"


def apply(layout: Layout) -> None:
    """Create or correct the objects."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects()}
    controlplane.kubectl(
        layout, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed)
    )


def objects() -> list[dict[str, Any]]:
    """What CoreDNS may read, and where pods find it."""
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    watched = {
        "apiGroups": [""],
        "resources": ["endpoints", "services", "pods", "namespaces"],
        "verbs": ["list", "watch"],
    }
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": DNS_USER},
            "rules": [watched, slices],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": DNS_USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": DNS_USER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DNS_USER}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _NAME, "namespace": _NAMESPACE},
            "spec": {
                "clusterIP": DNS_IP,
                "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": _NAME,
                "namespace": _NAMESPACE,
                "labels": {
                    "kubernetes.io/service-name": _NAME,
                    "endpointslice.kubernetes.io/managed-by": "sandbox",
                },
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
            "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports],
        },
    ]
