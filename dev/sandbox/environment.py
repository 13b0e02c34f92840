"""What a person or a script needs to use a sandbox from outside, as environment variables."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from sandbox import builds
from sandbox.layout import REPOSITORY, Layout, SandboxError

USE_CLUSTER = "MILLRACE_USE_CLUSTER"


def uses_own_cluster() -> bool:
    """Whether the user brings a cluster; then nothing is started and nothing is entered."""
    return os.environ.get(USE_CLUSTER, "") not in {"", "0"}


def check_own_cluster() -> None:
    """A cluster of the user's own must be reachable through a file that exists."""
    configured = os.environ.get("KUBECONFIG", "")
    if not configured or not any(Path(part).is_file() for part in configured.split(os.pathsep) if part):
        raise SandboxError(
            f"{USE_CLUSTER} is set, but KUBECONFIG names no file: set it to your cluster's kubeconfig"
        )


def variables(layout: Layout) -> dict[str, str]:
    """The variables and their values. `PATH` gains kubectl and, once built, helm and kubeconform."""
    # Imported here: the control plane alone must not depend on anything of Pulsar's.
    from sandbox import pulsar  # noqa: PLC0415

    broker = pulsar.endpoints(layout)
    return {
        "SANDBOX": layout.name,
        "SANDBOX_ENTER": shlex.join(layout.enter()),
        "KUBECONFIG": str(layout.kubeconfig),
        "KUBECACHEDIR": str(layout.kubectl_cache),
        "PULSAR_SERVICE_URL": broker.service_url,
        "PULSAR_ADMIN_URL": broker.admin_url,
        "PULSAR_TOKEN_FILE": str(broker.admin_token_file),
        "PULSAR_CA_FILE": str(broker.ca_file),
        "PULSAR_RESTART_COMMAND": _command(layout, "restart", "pulsar"),
        "PATH": os.pathsep.join([*_program_directories(), os.environ.get("PATH", "")]),
    }


def assignments(layout: Layout) -> str:
    """The variables as a shell reads them: `eval "$(python -m sandbox env)"`."""
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in variables(layout).items() if name != "PATH"
    ]
    added = os.pathsep.join(_program_directories())
    return "\n".join([*lines, f'export PATH={shlex.quote(added)}:"$PATH"'])


def _command(layout: Layout, *arguments: str) -> str:
    """A command of this program, as a shell takes it anywhere."""
    path = f"PYTHONPATH={REPOSITORY / 'dev'}"
    return shlex.join(["env", path, sys.executable, "-m", "sandbox", "--name", layout.name, *arguments])


def _program_directories() -> list[str]:
    built = (builds.BUILDS[name].directory for name in ("kube", "helm", "kubeconform"))
    return [str(directory) for directory in built if directory.exists()]
