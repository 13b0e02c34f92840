"""The images of a sandbox, built without Docker and without a registry, and handed to its containerd.

Each image is named after a hash of all that goes into it. So "is it there?" is a question about a name, a
second start builds nothing, and a pod runs exactly the code that its Deployment names. Builds share one store
in the cache; what differs between two builds of the project is one small layer.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox import buildah, progress
from sandbox.layout import REPOSITORY, Layout, SandboxError

_PAUSE_SOURCE = Path(__file__).resolve().parent / "pause"
_PAUSE_CONTAINERFILE = 'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'

PROJECT = "localhost/millrace"
SPARK = "localhost/millrace-spark"
_SOURCES = ("Dockerfile", ".dockerignore", "dev/locks/operator.txt", "operator/millrace")
_SPARK_SOURCES = (*_SOURCES, "dev/locks/spark.txt", "spark-apps")
ATTEMPTS = 4
KEPT = 5
"""How many builds of one image stay in the store: enough to go back and forth between branches."""


@dataclass(frozen=True, slots=True)
class Image:
    """A repository and a tag."""

    repository: str
    tag: str

    @property
    def reference(self) -> str:
        """As a pod names it."""
        return f"{self.repository}:{self.tag}"


def pause_image() -> Image:
    """What containerd starts first in every pod."""
    return Image("localhost/millrace-pause", _digest(_PAUSE_SOURCE.parent, ["pause"], _PAUSE_CONTAINERFILE))


def project_image() -> Image:
    """The operator's image, as the sources are now."""
    return Image(PROJECT, f"dev-{_digest(REPOSITORY, _SOURCES, buildah.base_name())}")


def spark_image() -> Image:
    """The image of Spark's drivers and executors, as the sources are now."""
    return Image(SPARK, f"dev-{_digest(REPOSITORY, _SPARK_SOURCES, buildah.base_name())}")


def image_reference(layout: Layout) -> str:
    """The operator's image as the cluster knows it; built and imported now if it is not there yet."""
    return ensure_project(layout).reference


def ensure(layout: Layout) -> None:
    """Everything that a cluster with the operator needs: the pause image and the project's."""
    ensure_pause(layout)
    ensure_project(layout)


def ensure_pause(layout: Layout) -> None:
    """The image without which no pod starts."""
    image = pause_image()
    if image.reference in imported(layout):
        return
    with progress.step("Making the pause image"), buildah.only_one_build():
        if not buildah.has(image.reference):
            _build_pause(image)
        _import(layout, image)


def ensure_project(layout: Layout) -> Image:
    """The project's own image."""
    return _ensure_from_dockerfile(layout, project_image, target="operator")


def ensure_spark(layout: Layout) -> Image:
    """The image for Spark, which is large: only who runs Spark asks for it."""
    return _ensure_from_dockerfile(layout, spark_image, target="spark")


def imported(layout: Layout) -> set[str]:
    """The images that the sandbox's containerd has."""
    return set(_ctr(layout, "images", "list", "--quiet").split())


def _ensure_from_dockerfile(layout: Layout, current: Callable[[], Image], *, target: str) -> Image:
    image = current()
    if image.reference in imported(layout):
        return image
    with buildah.only_one_build():
        base = buildah.ensure_base()
        for _ in range(ATTEMPTS):
            image = current()
            if not buildah.has(image.reference):
                with progress.step(f"Building {image.reference}") as step:
                    buildah.build(REPOSITORY, image.reference, target=target, base=base, say=step.say)
            if current() == image:
                break
            # A file was saved during the build, so the name may not tell the truth.
            buildah.forget(image.reference)
        else:
            raise SandboxError(
                "the sources change faster than an image is built: repeat when they are at rest"
            )
        buildah.forget_older(image.repository, keep=KEPT)
        if image.reference not in imported(layout):
            with progress.step(f"Importing {image.reference}"):
                _import(layout, image)
    return image


def _build_pause(image: Image) -> None:
    with tempfile.TemporaryDirectory(prefix="millrace-pause-") as scratch:
        go = subprocess.run(
            ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{scratch}/pause", "."],
            cwd=_PAUSE_SOURCE,
            env=buildah.environment({"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}),
            capture_output=True,
            text=True,
            check=False,
        )
        if go.returncode != 0:
            raise SandboxError(f"`go build` failed in {_PAUSE_SOURCE}:\n{go.stderr.strip()}")
        (Path(scratch) / "Dockerfile").write_text(_PAUSE_CONTAINERFILE)
        buildah.build(Path(scratch), image.reference)


def _import(layout: Layout, image: Image) -> None:
    # Below the sandbox: if this is killed, `down` removes what is left.
    with tempfile.TemporaryDirectory(dir=layout.state, prefix="image-") as scratch:
        archive = Path(scratch) / "image.tar"
        buildah.export(image.reference, archive)
        _ctr(layout, "images", "import", str(archive))


def _ctr(layout: Layout, *arguments: str) -> str:
    result = subprocess.run(
        ["ctr", "--address", str(layout.containerd_socket), "--namespace", "k8s.io", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise SandboxError(
            f"`ctr {' '.join(arguments)}` failed: {result.stderr.strip()}\n"
            f"  Does containerd run? `python -m sandbox --name {layout.name} status` says so."
        )
    return result.stdout


def _digest(root: Path, sources: Iterable[str], *others: str) -> str:
    """A hash of files (with their names) and of whatever else decides what comes out."""
    digest = hashlib.sha256()
    for other in others:
        digest.update(other.encode() + b"\0")
    for source in sources:
        path = root / source
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            if "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
