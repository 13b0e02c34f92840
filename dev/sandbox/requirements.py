"""What the machine must offer: root on Linux, and a handful of Debian packages, installed when missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess

from sandbox import progress
from sandbox.layout import SandboxError

ELSEWHERE = (
    "  Or use a cluster that you have already: set KUBECONFIG and MILLRACE_USE_CLUSTER=1;\n"
    "  the tests and the demo then run against that one."
)
GO_VERSION = (1, 24)

# A program that tells that the package is there -> the package.
_NETWORK = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "openssl": "openssl"}
_NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
_BROKER = {"java": "openjdk-17-jre-headless", "mvn": "maven"}
_NEEDED = {
    "control-plane": _NETWORK,
    "cluster": {**_NETWORK, **_NODE},
    "pulsar": {**_NETWORK, **_BROKER},
    "all": {**_NETWORK, **_NODE, **_BROKER},
}


def ensure(extent: str) -> None:
    """Check that the sandbox can run here, and install the packages that this extent of it needs."""
    if platform.system() != "Linux":
        raise SandboxError(f"the sandbox needs Linux, and this is {platform.system()}.\n{ELSEWHERE}")
    if os.geteuid() != 0:
        raise SandboxError(
            "the sandbox needs root: it makes network namespaces, mounts and cgroups. Repeat as root.\n"
            + ELSEWHERE
        )
    # Debian keeps these out of the PATH of some shells.
    for directory in ("/usr/local/go/bin", "/usr/sbin", "/sbin"):
        if directory not in os.environ["PATH"].split(os.pathsep):
            os.environ["PATH"] += os.pathsep + directory
    missing = sorted(
        {package for program, package in _NEEDED[extent].items() if shutil.which(program) is None}
    )
    if missing:
        _install(missing)
    if extent != "pulsar":
        _ensure_go()
    if "java" in _NEEDED[extent]:
        _check_java()


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise SandboxError(
            f"install these with the system's package manager: {', '.join(packages)}.\n{ELSEWHERE}"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"Installing {' '.join(packages)}") as step:
        for command in (
            ["apt-get", "update", "-q"],
            # Nothing may be started by the installation: the sandbox runs its own containerd.
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
        ):
            step.say(" ".join(command[:2]))
            result = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise SandboxError(
                    f"`{' '.join(command)}` failed:\n{(result.stdout + result.stderr).strip()[-1500:]}\n"
                    f"  Correct the package sources, or install them by hand, and repeat.\n{ELSEWHERE}"
                )


def _ensure_go() -> None:
    if shutil.which("go") is None:
        _install(["golang-go"])
    told = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", told)
    # From 1.21 on Go fetches the toolchain that a go.mod asks for by itself.
    policy = subprocess.run(
        ["go", "env", "GOTOOLCHAIN"], capture_output=True, text=True, check=False
    ).stdout.strip()
    oldest = (1, 21) if policy == "auto" else GO_VERSION
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise SandboxError(
            "the sandbox builds Kubernetes from source and needs Go "
            f"{'.'.join(map(str, GO_VERSION))} or newer; found: {told.strip() or 'none'}.\n"
            f"  Install it in /usr/local/go or on the PATH, and repeat.\n{ELSEWHERE}"
        )


def _check_java() -> None:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < 17:
        raise SandboxError(
            f"Pulsar needs Java 17 or newer; found: {told.splitlines()[0] if told else 'none'}.\n"
            "  Install openjdk-17-jre-headless and choose it (`update-alternatives --config java`)."
        )
