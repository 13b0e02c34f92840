"""A whole sandbox, with pods, Pulsar and the release: used as somebody's own cluster, killed, and removed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sandbox import commands, traces

pytestmark = pytest.mark.full

SOME_TEST = (
    "tests/e2e/test_composite_topic_lifecycle.py::test_kubectl_wait_and_the_printer_columns_tell_the_truth"
)
COMPONENTS = {
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("containerd", "kubelet", "kube-proxy", "coredns"),
    *("pulsar", "spark-operator"),
}


@pytest.fixture(scope="module")
def whole() -> Iterator[str]:
    """One for all tests here that leave it as they found it."""
    name = commands.fresh_name()
    try:
        commands.succeed(name, "up", seconds=commands.WHOLE)
        yield name
    finally:
        commands.succeed(name, "down")


def test_a_second_up_leaves_everything_alone(whole: str) -> None:
    before = commands.running(whole)
    assert before.keys() == COMPONENTS
    pods = pods_of(whole)
    assert len(pods) == 2
    commands.succeed(whole, "up", seconds=commands.WHOLE)
    assert commands.running(whole) == before
    assert pods_of(whole) == pods


def pods_of(name: str) -> dict[str, int]:
    """How often each pod was restarted, by its UID."""
    listed = json.loads(commands.succeed(name, "exec", "--", "kubectl", "get", "pods", "-A", "-o", "json"))
    return {
        pod["metadata"]["uid"]: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        for pod in listed["items"]
    }


def test_the_e2e_tests_run_against_a_cluster_that_is_given(whole: str) -> None:
    evaluated = shlex.join(commands.argv(whole, "env"))
    chosen = ("KUBECONFIG", "PULSAR_SERVICE_URL", "PULSAR_ADMIN_URL", "PULSAR_TOKEN_FILE", "PULSAR_CA_FILE")
    given = " ".join(f'{name}="${name}"' for name in chosen)
    # No sandbox is named: the one that is meant by default is not there, and must not be asked for.
    absent = shlex.join(commands.argv(commands.fresh_name(), "exec", "--", sys.executable, "-m", "pytest"))
    script = (
        f'eval "$({evaluated})"; unset SANDBOX; '
        f"$SANDBOX_ENTER env MILLRACE_USE_CLUSTER=1 {given} {absent} -q {shlex.quote(SOME_TEST)}"
    )
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=commands.REPOSITORY,
        env=commands.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_up_brings_a_killed_pulsar_back_and_leaves_the_rest_alone(whole: str) -> None:
    before = commands.running(whole)
    commands.succeed(whole, "kill", "pulsar")
    assert "pulsar" not in commands.running(whole)
    commands.succeed(whole, "up", seconds=commands.WHOLE)
    after = commands.running(whole)
    assert {**after, "pulsar": 0} == {**before, "pulsar": 0}
    healthy = 'curl -sf --cacert "$PULSAR_CA_FILE" -H "Authorization: Bearer $(cat "$PULSAR_TOKEN_FILE")"'
    path = "$PULSAR_ADMIN_URL/admin/v2/brokers/health"
    assert commands.succeed(whole, "exec", "--", "sh", "-c", f'{healthy} "{path}"').strip() == "ok"


def test_down_leaves_nothing_of_a_whole_sandbox(whole: str) -> None:
    seen = traces.processes(whole)
    assert len([each for each in seen if each.words.startswith("/pause")]) == 2, "pods are seen, too"
    found = traces.of(whole)
    for kind in ("process", "mount", "network namespace", "cgroup", "file"):
        assert any(each.startswith(kind) for each in found), kind
    sockets = sockets_of_pods(whole)
    assert sockets
    assert all(path.exists() for path in sockets)
    commands.succeed(whole, "down")
    assert traces.of(whole, seen) == []
    assert not [path for path in sockets if path.exists()]
    assert commands.run(whole, "status").returncode == 1


def sockets_of_pods(name: str) -> list[Path]:
    """Sockets that containerd keeps where all sandboxes meet, under names that are digests."""
    tasks = Path("/run/millrace", name, "containerd", "io.containerd.runtime.v2.task")
    return [Path(path.read_text().strip().removeprefix("unix://")) for path in tasks.glob("*/*/address")]


# Killed half way


def an_image_is_being_imported(name: str) -> bool:
    return any(Path("/var/lib/millrace", name).glob("image-*/image.tar"))


def the_kubelet_runs(name: str) -> bool:
    return Path("/run/millrace", name, "pids", "kubelet.json").exists()


def a_pod_runs(name: str) -> bool:
    return any(
        Path("/run/millrace", name, "containerd", "io.containerd.runtime.v2.task").glob("k8s.io/*/init.pid")
    )


@pytest.mark.parametrize("point", [an_image_is_being_imported, the_kubelet_runs, a_pod_runs])
def test_a_whole_sandbox_that_was_killed_can_be_completed_and_removed_when(
    point: Callable[[str], bool], name: str
) -> None:
    commands.killed_half_way(name, "up", when=lambda: point(name))
    commands.succeed(name, "up", seconds=commands.WHOLE)
    assert commands.running(name).keys() == COMPONENTS
    assert len(pods_of(name)) == 2
    seen = traces.processes(name)
    commands.succeed(name, "down")
    assert traces.of(name, seen) == []


@pytest.mark.parametrize("point", [an_image_is_being_imported, the_kubelet_runs, a_pod_runs])
def test_down_removes_what_a_whole_up_that_was_killed_has_left_when(
    point: Callable[[str], bool], name: str
) -> None:
    commands.killed_half_way(name, "up", when=lambda: point(name))
    seen = traces.processes(name)
    commands.succeed(name, "down")
    assert traces.of(name, seen) == []
