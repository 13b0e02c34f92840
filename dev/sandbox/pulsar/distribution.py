"""The Pulsar distribution: fetched once per machine, unpacked, and given a class archive to start faster.

The archive (AppCDS) is recorded by a short training run in a network namespace with no device but loopback.
It depends on the exact Java and on the jars' paths, so it lies beside them and is named after its Java.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.layout import SandboxError, cache_root
from sandbox.pulsar import configuration

VERSION = "4.0.8"
ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
TRAINING_SECONDS = 120

MEMORY = [
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
]
"""A broker for one machine. With less than 256 MB of direct memory it hangs; the compiler's second tier costs
more than it gives in a process that lives for minutes."""

OPENED = [
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
]
"""What Pulsar's own start script opens: without it Netty falls back to slower and larger buffers."""

PROPERTIES = [
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.is.webapp=false",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
]


def home() -> Path:
    """Where the distribution is unpacked."""
    return cache_root() / f"pulsar-{VERSION}"


def ensure() -> Path:
    """The unpacked distribution with its class archive; whatever is missing is fetched or made now."""
    java()
    with _only_one_process():
        if not (home() / "lib").is_dir():
            _fetch()
        if not _archive().exists():
            _record_archive()
    return home()


def java() -> Path:
    """The Java that runs Pulsar."""
    found = shutil.which("java")
    if found is None:
        raise SandboxError(
            "Pulsar needs Java 17: install a JRE (Debian: `apt-get install openjdk-17-jre-headless`)"
        )
    return Path(found).resolve()


def command(config: Path, *, address: str, data: Path, archive: list[str] | None = None) -> list[str]:
    """The command line of a standalone Pulsar."""
    if archive is None:
        archive = [f"-XX:SharedArchiveFile={_archive()}", "-Xshare:auto"] if _archive().exists() else []
    return [
        str(java()),
        *archive,
        *MEMORY,
        *PROPERTIES,
        *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENED),
        f"-Dlog4j.configurationFile=file:{configuration.LOGGING}",
        *("-cp", f"{home()}/lib/*"),
        "org.apache.pulsar.PulsarStandaloneStarter",
        *("--config", str(config)),
        *("--advertised-address", address),
        "--no-functions-worker",
        "--no-stream-storage",
        *("--metadata-dir", str(data / "metadata")),
        *("--bookkeeper-dir", str(data / "bookkeeper")),
    ]


def _fetch() -> None:
    if shutil.which("mvn") is None:
        raise SandboxError("fetching Pulsar needs Maven: install it (Debian: `apt-get install maven`)")
    cache_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix="pulsar-fetch-") as scratch:
        outcome = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={scratch}"],
            check=False,
            capture_output=True,
            text=True,
            cwd=scratch,
        )
        archives = list(Path(scratch).glob("*.tar.gz"))
        if outcome.returncode != 0 or len(archives) != 1:
            raise SandboxError(
                f"Maven could not fetch {ARTIFACT}: check that its repository is reachable, then repeat.\n"
                f"{outcome.stdout[-2000:]}"
            )
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="tar")
        (Path(scratch) / f"apache-pulsar-{VERSION}").rename(home())


def _archive() -> Path:
    """Named after all that the JVM checks before it accepts the archive."""
    runtime = java().parents[1] / "lib" / "modules"
    status = runtime.stat() if runtime.exists() else java().stat()
    identity = repr((str(java()), status.st_size, int(status.st_mtime), MEMORY, OPENED, PROPERTIES))
    return home() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def _record_archive() -> None:
    """Run Pulsar once, far from any sandbox, and let the JVM write down which classes it loaded.

    A failure costs only speed: Pulsar runs without the archive too.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-pulsar-training-") as scratch:
        config = Path(scratch) / "standalone.conf"
        config.write_text(configuration.render(home(), configuration.untrusting()))
        unfinished = Path(scratch) / "classes.jsa"
        argv = command(
            config,
            address="127.0.0.1",
            data=Path(scratch),
            archive=[f"-XX:ArchiveClassesAtExit={unfinished}"],
        )
        log_path = Path(scratch) / "training.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=scratch,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + TRAINING_SECONDS
            while configuration.STARTED not in log_path.read_bytes() and process.poll() is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            process.terminate()
            process.wait(timeout=TRAINING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if unfinished.exists():
            shutil.move(unfinished, _archive())


@contextmanager
def _only_one_process() -> Iterator[None]:
    """Two sandboxes that start at once share one download."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "pulsar.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
