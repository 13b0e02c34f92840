"""buildah with a store of its own in the cache, and the base image that takes the place of a registry's.

The base is a small Debian, made by debootstrap from the mirror that this machine's apt is configured with.
Who builds the project's Dockerfile elsewhere takes the default of its BASE argument instead.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox import netns, progress
from sandbox.layout import SandboxError, cache_root

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
_LEFT_OUT = (
    "./dev/*",
    "./proc/*",
    "./sys/*",
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/log/*",
    "./usr/share/doc/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
)
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "default-timeout", "proxy", "retries")
"""What may be passed into a build. Paths of this machine mean nothing there."""


def base_name() -> str:
    """The base image, named after what it is made of."""
    recipe = repr((SUITE, PACKAGES, _LEFT_OUT))
    return f"localhost/millrace-base:{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def ensure_base() -> str:
    """The base image's name; made now if this machine has never made it."""
    name = base_name()
    if not has(name):
        with progress.step(f"Making a Debian {SUITE} base image") as step:
            _make_base(name, step.say)
    return name


def has(reference: str) -> bool:
    """Whether the store holds an image."""
    return _call("images", "--quiet", reference, check=False).returncode == 0


def build(
    context: Path,
    reference: str,
    *,
    target: str | None = None,
    base: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Build a Dockerfile. Layers are kept, so that the next build repeats only what has changed."""
    arguments = ["bud", "--isolation", "chroot", "--layers", "--pull-never", "--tag", reference]
    if target is not None:
        arguments += ["--target", target]
    if base is not None:
        arguments += ["--build-arg", f"BASE={base}"]
    with tempfile.TemporaryDirectory(prefix="millrace-build-") as scratch:
        bundle = Path(os.environ.get("SSL_CERT_FILE", _CA_BUNDLE))
        if bundle.is_file():
            arguments += ["--secret", f"id=ca-certificates,src={bundle}"]
        settings = Path(scratch) / "pip.conf"
        if _write_pip_settings(settings):
            arguments += ["--secret", f"id=pip-config,src={settings}"]
        _call(*arguments, str(context), say=say)


def export(reference: str, archive: Path) -> None:
    """Write an image to a file that containerd can import."""
    _call("push", "--disable-compression", reference, f"docker-archive:{archive}:{reference}")


def forget_older(repository: str, *, keep: int) -> None:
    """Remove all but the newest builds of an image; what others share with them stays."""
    told = _call(
        "images", "--format", "{{.CreatedAtRaw}}\t{{.Name}}:{{.Tag}}", repository, check=False
    ).stdout
    newest_first = sorted((line.split("\t") for line in told.splitlines() if "\t" in line), reverse=True)
    for _, reference in newest_first[keep:]:
        forget(reference)


def forget(reference: str) -> None:
    """Remove a name, and what no other image needs."""
    _call("rmi", reference, check=False)


@contextmanager
def only_one_build() -> Iterator[None]:
    """Two sandboxes that start at once share one build."""
    _store().mkdir(parents=True, exist_ok=True)
    with (_store() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step("Waiting for another image build"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            _release_mounts()


def environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with something added."""
    return {**os.environ, **(added or {})}


def _make_base(name: str, say: Callable[[str], None]) -> None:
    mirror = _mirror()
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix="base-") as scratch:
        tree = Path(scratch) / "tree"
        include = ",".join(PACKAGES)
        _run(["debootstrap", "--variant=minbase", f"--include={include}", SUITE, str(tree), mirror], say=say)
        say("packing")
        left_out = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        context = Path(scratch) / "context"
        context.mkdir()
        _run(
            ["tar", "--directory", str(tree), *left_out, "--create", "--file", str(context / "base.tar"), "."]
        )
        shutil.rmtree(tree)
        (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["python3"]\n')
        build(context, name, say=say)


def _mirror() -> str:
    """The mirror that apt uses on this machine."""
    if shutil.which("apt-get") is None:
        raise SandboxError("making the base image needs Debian or Ubuntu: this system has no apt-get")
    told = _run(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"])
    mirrors = [line.split()[1] for line in told.splitlines() if line.split()[0] == SUITE]
    if not mirrors:
        raise SandboxError(
            f"apt knows no package source for Debian {SUITE}, from which the base image is made:\n"
            "  add one below /etc/apt/sources.list.d, run `apt-get update`, and repeat."
        )
    return mirrors[0]


def _write_pip_settings(path: Path) -> bool:
    """The machine's settings for pip, from files and environment, as far as they mean something elsewhere."""
    known = configparser.ConfigParser(interpolation=None)
    known.read([Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"])
    wanted = {}
    for name in _PIP_SETTINGS:
        value = os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or known.get(
            "global", name, fallback=""
        )
        if value:
            wanted[name] = value
    path.touch(mode=0o600)
    path.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in wanted.items()))
    return bool(wanted)


def _store() -> Path:
    return cache_root() / "buildah"


def _call(
    *arguments: str, check: bool = True, say: Callable[[str], None] = lambda _: None
) -> subprocess.CompletedProcess[str]:
    store = [
        "--root",
        str(_store() / "storage"),
        "--runroot",
        str(_store() / "run"),
        "--storage-driver",
        "overlay",
    ]
    command = ["buildah", *store, *arguments]
    if not check:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    return subprocess.CompletedProcess(command, 0, stdout=_run(command, say=say))


def _run(command: list[str], say: Callable[[str], None] = lambda _: None) -> str:
    """Run a program that may take long, and pass on every line it says. What it downloads is outside."""
    lines = []
    with subprocess.Popen(
        [*netns.leave(), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1])
    if process.returncode != 0:
        told = "\n".join(f"  | {line}" for line in lines[-20:])
        raise SandboxError(
            f"`{' '.join(command[:2])} ...` failed with status {process.returncode}:\n{told}\n"
            "  If a download failed, check that the package sources are reachable, then repeat."
        )
    return "\n".join(lines)


def _release_mounts() -> None:
    """The overlay driver binds its folder onto itself and leaves it so; nothing may stay mounted."""
    storage = _store() / "storage" / "overlay"
    while storage.is_mount():
        if subprocess.run(["umount", str(storage)], capture_output=True, check=False).returncode != 0:
            return
