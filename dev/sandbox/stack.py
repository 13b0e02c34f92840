"""The parts of a sandbox in the order in which they start, and how each is started again on its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import StrEnum

from sandbox import builds, controlplane, images, netns, node, processes, progress, requirements
from sandbox.layout import Layout, SandboxError

PULSAR = "pulsar"
SPARK_OPERATOR = "spark-operator"


class Extent(StrEnum):
    """How much of the sandbox to bring up."""

    CONTROL_PLANE = "control-plane"
    CLUSTER = "cluster"
    PULSAR = "pulsar"
    ALL = "all"


def up(layout: Layout, *, extent: Extent, release: bool) -> None:
    """Bring the sandbox up as far as asked. What runs already is left alone."""
    requirements.ensure(extent.value)
    if extent is not Extent.PULSAR:
        builds.program("kube-apiserver")
    netns.ensure(layout)
    if extent is not Extent.PULSAR:
        with progress.step("Starting the control plane"):
            controlplane.start(layout)
    if extent in {Extent.PULSAR, Extent.ALL}:
        _start_pulsar(layout)
    if extent in {Extent.CLUSTER, Extent.ALL}:
        _start_cluster(layout)
    if extent is Extent.ALL and release:
        _install_release(layout)


def component_names(layout: Layout) -> list[str]:
    """Every daemon a sandbox can have, in the order in which they start."""
    known = [*controlplane.NAMES, PULSAR, *node.NAMES, SPARK_OPERATOR]
    recorded = {path.stem for path in (layout.run / "pids").glob("*.json")}
    return [*known, *sorted(recorded - set(known))]


def restart(layout: Layout, component: str) -> None:
    """Stop a component in an orderly way and start it again with the same data."""
    starter = _starter(layout, component)
    with progress.step(f"Restarting {component}"):
        processes.stop(layout, component, grace=30.0)
        starter()


def kill(layout: Layout, component: str) -> None:
    """What a power cut does to one component; `up` or `restart` brings it back."""
    _check_known(layout, component)
    if processes.pid_of(layout, component) is None:
        raise SandboxError(
            f"{component} does not run: `python -m sandbox --name {layout.name} status` shows what does"
        )
    processes.stop(layout, component, first=signal.SIGKILL)


def _check_known(layout: Layout, component: str) -> None:
    if component not in component_names(layout):
        raise SandboxError(
            f"there is no component {component!r}: choose one of {', '.join(component_names(layout))}"
        )


def _starter(layout: Layout, component: str) -> Callable[[], None]:
    """What starts a component. Asking writes the configuration that it reads."""
    _check_known(layout, component)
    if component == PULSAR:
        from sandbox import pulsar  # noqa: PLC0415

        return lambda: pulsar.start(layout)
    if component == SPARK_OPERATOR:
        from sandbox import sparkoperator  # noqa: PLC0415

        return lambda: sparkoperator.start(layout)
    for module in (controlplane, node):
        if component in module.NAMES:
            daemon = next(each for each in module.daemons(layout) if each.name == component)
            return lambda: processes.start(layout, daemon)
    raise SandboxError(f"{component} runs, but this version does not know how to start it: `down`, then `up`")


def _start_pulsar(layout: Layout) -> None:
    from sandbox import pulsar  # noqa: PLC0415

    with progress.step("Starting Pulsar"):
        pulsar.start(layout)


def _start_cluster(layout: Layout) -> None:
    node.start_runtime(layout)
    images.ensure_pause(layout)
    with progress.step("Starting the node"):
        node.start(layout)


def _install_release(layout: Layout) -> None:
    from sandbox import release, sparkoperator  # noqa: PLC0415

    images.ensure_project(layout)
    with progress.step("Starting the spark-operator"):
        sparkoperator.start(layout)
    with progress.step("Installing the chart"):
        release.install(layout)
