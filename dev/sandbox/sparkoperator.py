"""kubeflow's spark-operator as a process in the sandbox's network: for all namespaces, without its webhook.

It runs `spark-submit` itself, so it needs a Spark: the one that PySpark's package brings. The image that
drivers and executors run from is large, and is made only for those who run Spark (`images.ensure_spark`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path

from sandbox import builds, controlplane, processes
from sandbox.layout import NODE_IP, Layout, SandboxError, cache_root

DAEMON = "spark-operator"
HEALTH_PORT = 18081
API_PORT = 6443
MODULE = "github.com/kubeflow/spark-operator/v2"
_BUILD = builds.BUILDS["spark-operator"]
_GROUP = "sparkoperator.k8s.io"
_KINDS = {"sparkapplications", "scheduledsparkapplications", "sparkconnects"}
ESTABLISHED_SECONDS = 30


def start(layout: Layout) -> None:
    """Install its custom resource definitions and start it, unless it runs already."""
    if processes.pid_of(layout, DAEMON) is None:
        _install_definitions(layout)
    processes.start(layout, _daemon(layout))


def stop(layout: Layout) -> None:
    """Stop it; applications that run go on without it."""
    processes.stop(layout, DAEMON)


def _daemon(layout: Layout) -> processes.Daemon:
    spark = _spark_home()
    return processes.Daemon(
        name=DAEMON,
        argv=[
            str(builds.program("spark-operator")),
            "controller",
            "start",
            f"--kubeconfig={layout.kubeconfig}",
            "--namespaces=",  # all of them
            "--controller-threads=2",
            "--enable-ui-service=false",
            "--leader-election=false",
            f"--health-probe-bind-address=127.0.0.1:{HEALTH_PORT}",
            "--zap-encoder=console",
        ],
        ready=controlplane.answers(layout, HEALTH_PORT, "/readyz", tls=False),
        env={
            "SPARK_HOME": str(spark),
            "KUBECONFIG": str(layout.kubeconfig),
            # From these two it makes the address that it hands to spark-submit.
            "KUBERNETES_SERVICE_HOST": NODE_IP,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SandboxError(
            "the spark-operator needs PySpark beside the sandbox: install the project with its extra `spark`"
        )
    return Path(found.origin).parent


def _install_definitions(layout: Layout) -> None:
    files = _definitions()
    # On the server's side: they are too large for the annotation in which kubectl would keep them.
    named = [word for file in files for word in ("--filename", str(file))]
    controlplane.kubectl(layout, "apply", "--server-side", "--force-conflicts", *named)
    # `kubectl wait` fails on a definition so new that it has no conditions; what counts is that it is served.
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while not _served(layout).issuperset(_KINDS):
        if time.monotonic() > deadline:
            raise SandboxError(
                f"the API server does not serve {_GROUP} {ESTABLISHED_SECONDS} s after it was defined"
            )
        time.sleep(0.2)


def _served(layout: Layout) -> set[str]:
    told = controlplane.kubectl(
        layout, "api-resources", f"--api-group={_GROUP}", "--output=name", "--cached=false"
    )
    return {line.partition(".")[0] for line in told.splitlines()}


def _definitions() -> list[Path]:
    """The definitions as the module ships them, copied so that a start needs no Go."""
    folder = cache_root() / f"spark-operator-crds-{_BUILD.version}"
    if not folder.exists():
        shipped = builds.module_directory(_BUILD, MODULE) / "charts" / "spark-operator-chart" / "crds"
        unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        for file in shipped.glob("*.yaml"):
            shutil.copyfile(file, unfinished / file.name)
        unfinished.rename(folder)
    return sorted(folder.glob("*.yaml"))
