"""The one node: containerd, the kubelet, kube-proxy and cluster DNS, as processes in the sandbox's namespace.

Everything that these programs would share with others on the machine (directories, sockets, cgroups,
networks) is moved below the sandbox's own, so that two nodes can run side by side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox import addons, builds, cgroups, controlplane, images, pki, processes
from sandbox.layout import CLUSTER_DOMAIN, DNS_IP, NODE_IP, POD_CIDR, Layout
from sandbox.processes import Daemon

NAMES = ("containerd", "kubelet", "kube-proxy", "coredns")
_CNI_PLUGINS = "/usr/lib/cni"
_DNS_HEALTH_PORT = 8181
_DNS_READY_PORT = 8182


def daemons(layout: Layout) -> list[Daemon]:
    """In the order in which they start. Asking writes the certificates and configuration that they read."""
    return [_containerd(layout), _kubelet(layout), _proxy(layout), _dns(layout)]


def start_runtime(layout: Layout) -> None:
    """Start containerd alone, so that images can be imported before the first pod."""
    processes.start(layout, _containerd(layout))


def start(layout: Layout) -> None:
    """Start the rest, and wait until the node takes pods."""
    cgroups.ensure(layout)
    addons.apply(layout)
    for daemon in daemons(layout):
        processes.start(layout, daemon)


def name(layout: Layout) -> str:
    """The node's name in Kubernetes."""
    return layout.netns


def _containerd(layout: Layout) -> Daemon:
    network = layout.state / "cni" / "net.d"
    _write(network / "10-sandbox.conflist", json.dumps(_network(layout), indent=2))
    config = _write(
        layout.state / "containerd.toml",
        f"""\
version = 2
root = "{layout.state / "containerd"}"
state = "{layout.run / "containerd"}"

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.state / "containerd-opt"}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.pause_image().reference}"
  stream_server_address = "127.0.0.1"
  # Without CAP_SYS_RESOURCE no process may lower its score, and pods would not start.
  restrict_oom_score_adj = true
  # Pods' namespaces in the sandbox's own directory, not in a place that all of them share.
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{_CNI_PLUGINS}"
  conf_dir = "{network}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{layout.run / "runc"}"
""",
    )
    return Daemon(
        name="containerd",
        argv=["containerd", "--config", str(config), "--log-level", "warn"],
        ready=lambda: controlplane.succeeds("ctr", "--address", str(layout.containerd_socket), "version"),
    )


def _network(layout: Layout) -> dict[str, Any]:
    address_management = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(layout.state / "cni" / "addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": address_management,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": layout.netns, "plugins": [bridge, ports]}


def _kubelet(layout: Layout) -> Daemon:
    login = pki.component_kubeconfig(
        layout, "kubelet", user=f"system:node:{name(layout)}", group="system:nodes"
    )
    server = pki.issue(layout, "kubelet-server", common_name=name(layout), names=[NODE_IP, name(layout)])
    directory = layout.state / "kubelet"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.authority(layout).certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(server.certificate),
        "tlsPrivateKeyFile": str(server.key),
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": layout.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDNS": [DNS_IP],
        "clusterDomain": CLUSTER_DOMAIN,
        # The machine's own resolver is out of reach for pods, and its search domains are none of theirs.
        "resolvConf": str(_write(layout.state / "resolv.conf", "")),
        "podLogsDir": str(layout.state / "pod-logs"),
        "volumePluginDir": str(directory / "volume-plugins"),
        # Images cannot be pulled again, and a developer's disk is often nearly full.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "maxPods": 250,
        "nodeStatusUpdateFrequency": "5s",
    }
    path = _write(layout.state / "kubelet.json", json.dumps(config, indent=2))
    return Daemon(
        name="kubelet",
        argv=[
            str(builds.program("kubelet")),
            f"--config={path}",
            f"--kubeconfig={login}",
            f"--root-dir={directory}",
            f"--cert-dir={directory / 'pki'}",
            f"--hostname-override={name(layout)}",
            f"--node-ip={NODE_IP}",
        ],
        ready=lambda: _node_ready(layout),
    )


def _node_ready(layout: Layout) -> bool:
    if not controlplane.answers(layout, 10248, "/healthz", tls=False)():
        return False
    node = controlplane.get(layout, f"/api/v1/nodes/{name(layout)}") or {}
    conditions = node.get("status", {}).get("conditions", [])
    untouchable = {taint.get("effect") for taint in node.get("spec", {}).get("taints", [])} & {
        "NoSchedule",
        "NoExecute",
    }
    return not untouchable and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def _proxy(layout: Layout) -> Daemon:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {
            "kubeconfig": str(pki.component_kubeconfig(layout, "kube-proxy", user="system:kube-proxy"))
        },
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": name(layout),
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # The machine's connection tracking table is not ours to resize.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }
    path = _write(layout.state / "kube-proxy.json", json.dumps(config, indent=2))
    return Daemon(
        name="kube-proxy",
        argv=[str(builds.program("kube-proxy")), f"--config={path}"],
        ready=controlplane.answers(layout, 10256, "/healthz", tls=False),
    )


def _dns(layout: Layout) -> Daemon:
    login = pki.component_kubeconfig(layout, "coredns", user=addons.DNS_USER)
    corefile = _write(
        layout.state / "Corefile",
        f"""\
.:53 {{
    errors
    health 127.0.0.1:{_DNS_HEALTH_PORT}
    ready 127.0.0.1:{_DNS_READY_PORT}
    cache 5
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {login}
        pods insecure
        ttl 5
    }}
}}
""",
    )
    return Daemon(
        name="coredns",
        argv=[str(builds.program("coredns")), "-conf", str(corefile)],
        ready=controlplane.answers(layout, _DNS_READY_PORT, "/ready", tls=False),
    )


def _write(path: Path, text: str) -> Path:
    """Write a file unless it says the same already: kube-proxy ends when its configuration is touched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
