"""Programs built from pinned Go modules, kept outside the checkout by version and by a hash of their sources.

A build is made in a temporary directory and renamed, so a directory that exists is complete. A lock lets
two sandboxes that start at once share one build. Nothing is built until somebody asks for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandbox import progress
from sandbox.layout import SandboxError, cache_root

_HERE = Path(__file__).resolve().parent

KUBE_COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "etcd",
    "coredns",
)


@dataclass(frozen=True, slots=True)
class Build:
    """One Go command. `versioned_by` is the required module whose version names the build."""

    name: str
    module: Path
    package: str
    versioned_by: str
    version_packages: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """As pinned in go.mod."""
        text = (self.module / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require\s+)?{re.escape(self.versioned_by)}\s+(v\S+)", text, re.MULTILINE)
        if found is None:
            raise SandboxError(
                f"{self.module / 'go.mod'} does not require {self.versioned_by}: add it with `go get`"
            )
        return found.group(1)

    @property
    def link_flags(self) -> str:
        """Without symbols; Kubernetes reads its version from variables that only the linker sets."""
        flags = ["-s", "-w"]
        major, minor, *_ = self.version.removeprefix("v").split(".")
        for package in self.version_packages:
            flags += [
                f"-X {package}.gitVersion={self.version}",
                f"-X {package}.gitMajor={major}",
                f"-X {package}.gitMinor={minor}",
            ]
        return " ".join(flags)

    @property
    def directory(self) -> Path:
        """Where the finished build is; the name changes with anything that goes into it."""
        digest = hashlib.sha256()
        for source in sorted([*self.module.glob("go.*"), *self.module.glob("*.go")]):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        digest.update("\0".join([self.package, self.link_flags, *self.links]).encode())
        return cache_root() / "bin" / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"


_CHART_TOOLS = _HERE / "kube"
BUILDS = {
    build.name: build
    for build in (
        Build(
            name="kube",
            module=_HERE / "kube",
            package=".",
            versioned_by="k8s.io/kubernetes",
            version_packages=("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
            links=KUBE_COMMANDS,
        ),
        Build("helm", _CHART_TOOLS, "helm.sh/helm/v3/cmd/helm", versioned_by="helm.sh/helm/v3"),
        Build(
            "kubeconform",
            _CHART_TOOLS,
            "github.com/yannh/kubeconform/cmd/kubeconform",
            versioned_by="github.com/yannh/kubeconform",
        ),
        Build(
            "spark-operator",
            _HERE / "spark-operator",
            "github.com/kubeflow/spark-operator/v2/cmd/operator",
            versioned_by="github.com/kubeflow/spark-operator/v2",
        ),
    )
}


def program(name: str) -> Path:
    """The path of a program by the name it is called with; builds it first if it was never built."""
    build = BUILDS["kube" if name in KUBE_COMMANDS else name]
    return ensure(build) / name


@cache
def ensure(build: Build) -> Path:
    """The directory of a finished build."""
    directory = build.directory
    if not directory.exists():
        with _locked(directory), progress.step(f"Building {build.name} {build.version}") as step:
            if not directory.exists():
                _make(build, directory, step)
    return directory


def module_directory(build: Build, module: str) -> Path:
    """Where Go keeps the unpacked source of a module that a build requires: its CRDs and charts are there."""
    _go(build, "mod", "download", module)
    return Path(_go(build, "list", "-m", "-f", "{{.Dir}}", module).strip())


def _make(build: Build, directory: Path, step: progress.Step) -> None:
    step.say("resolving and downloading modules")
    total = len(_go(build, "list", "-deps", build.package).splitlines())
    # What is there already was left by a build that was killed: the lock is ours.
    for unfinished in directory.parent.glob(f".{directory.name}-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        command = [
            "go",
            "build",
            "-v",
            "-trimpath",
            "-ldflags",
            build.link_flags,
            "-o",
            str(temporary / build.name),
        ]
        words: list[str] = []
        with subprocess.Popen(
            [*command, build.package],
            cwd=build.module,
            env=_environment(),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            for count, line in enumerate(process.stderr, start=1):
                words.append(line.rstrip())
                step.say(f"{count} of at most {total} packages: {line.strip()}")
        if process.returncode != 0:
            told = "\n".join(f"  | {word}" for word in words[-20:])
            raise SandboxError(
                f"`go build {build.package}` failed in {build.module}:\n{told}\n"
                "  Is the module proxy reachable (`go env GOPROXY`)? Is the disk full? Repeat then."
            )
        for link in build.links:
            (temporary / link).symlink_to(build.name)
        temporary.chmod(0o755)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _go(build: Build, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["go", *arguments],
            cwd=build.module,
            env=_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        raise SandboxError("`go` is not installed: install Go 1.24 or newer and repeat") from None
    except subprocess.CalledProcessError as error:
        raise SandboxError(
            f"`go {' '.join(arguments)}` failed in {build.module}:\n{error.stderr.strip()}\n"
            "  Check that the Go module proxy is reachable (`go env GOPROXY`), then repeat."
        ) from None
    return result.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"Waiting for another build of {directory.name}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
