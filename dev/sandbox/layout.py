"""Names, paths and addresses of one sandbox: the only place that knows them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# The namespace has no link to the outside, so every sandbox uses the same addresses.
NODE_IP = "10.77.0.1"
NODE_CIDR = "10.77.0.0/24"
POD_CIDR = "10.78.0.0/16"
SERVICE_CIDR = "10.79.0.0/16"
DNS_IP = "10.79.0.10"
CLUSTER_DOMAIN = "cluster.local"


class SandboxError(Exception):
    """Something the user can act on: the message says what went wrong and what to do."""


def cache_root() -> Path:
    """Where builds are kept between sandboxes and checkouts, by version."""
    configured = os.environ.get("MILLRACE_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "millrace"


@dataclass(frozen=True, slots=True)
class Layout:
    """One sandbox's places. Nothing is created by asking."""

    name: str

    @classmethod
    def named(cls, name: str | None = None) -> Layout:
        """The sandbox that was asked for, by argument or by `SANDBOX`; `dev` if neither says."""
        chosen = name or os.environ.get("SANDBOX") or "dev"
        # It becomes part of the node's name, and Kubernetes refuses one that ends with a dash.
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?", chosen):
            raise SandboxError(
                f"{chosen!r} is no name for a sandbox: use up to 20 of a-z, 0-9 and '-', a letter first "
                "and no '-' last"
            )
        return cls(chosen)

    @property
    def state(self) -> Path:
        """Data, configuration, certificates, logs."""
        return Path("/var/lib/millrace") / self.name

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return Path("/run/millrace") / self.name

    @property
    def logs(self) -> Path:
        """One file per daemon."""
        return self.state / "logs"

    @property
    def netns(self) -> str:
        """The network namespace's name, as `ip netns` shows it."""
        return f"millrace-{self.name}"

    @property
    def netns_path(self) -> Path:
        """What nsenter needs. (`ip netns exec` would remount /sys and hide the cgroups from runc.)"""
        return Path("/run/netns") / self.netns

    @property
    def cgroup(self) -> str:
        """The cgroup below which the kubelet puts every pod."""
        return f"/millrace-{self.name}"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "admin.kubeconfig"

    @property
    def kubectl_cache(self) -> Path:
        """What kubectl and Helm remember of the API server: by its address, which all sandboxes share."""
        return self.state / "kubectl-cache"

    @property
    def containerd_socket(self) -> Path:
        """For the kubelet and for ctr."""
        return self.run / "containerd.sock"

    def enter(self) -> list[str]:
        """The command prefix that runs a program inside the sandbox's network."""
        return ["nsenter", f"--net={self.netns_path}"]
