"""The API server takes what the chart renders, and lets the operator do what it must and no more."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from tests.unit.chart import rendering
from tests.unit.chart.rendering import Document

pytestmark = pytest.mark.integration

# The Prometheus Operator's CRDs are not installed, and Helm's test pod needs the ServiceAccount to exist.
ELSEWHERE = {"ServiceMonitor", "Pod"}
RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
RESTRICTED = {
    "pod-security.kubernetes.io/warn": "restricted",
    "pod-security.kubernetes.io/enforce": "restricted",
}
OURS = "compositetopics.millrace.dev"


def kubectl(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("KUBECONFIG is not set: run this with `python -m sandbox --name test exec -- pytest ...`")
    return subprocess.run(
        ["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def apply(documents: list[Document], *options: str) -> subprocess.CompletedProcess[str]:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    done = kubectl("apply", "--server-side", *options, "--filename=-", stdin=listed)
    assert done.returncode == 0, done.stderr
    return done


@dataclass(frozen=True, slots=True)
class Place:
    """Namespaces of this run's own: where the release is, and where two teams are."""

    release: str
    teams: tuple[str, str]

    def rendered(self, *values: str) -> list[Document]:
        version = rendering.builds.BUILDS["kube"].version
        arguments = ("--namespace", self.release, "--kube-version", version)
        outcome = rendering.helm(
            "template", "millrace", str(rendering.CHART), *arguments, "--set", ",".join(values)
        )
        assert outcome.code == 0, outcome.stderr
        return [document for document in yaml.safe_load_all(outcome.stdout) if document]

    def may(self, verb: str, resource: str, namespace: str, name: str = "") -> bool:
        """What the authorizer says of the operator's account."""
        account = f"system:serviceaccount:{self.release}:millrace"
        what = f"{resource}/{name}" if name else resource
        where = ["--all-namespaces"] if namespace == "*" else ["--namespace", namespace]
        return kubectl("auth", "can-i", verb, what, "--as", account, *where).stdout.strip() == "yes"


@pytest.fixture
def place() -> Iterator[Place]:
    suffix = secrets.token_hex(3)
    names = [f"chart-{suffix}", f"chart-{suffix}-a", f"chart-{suffix}-b"]
    apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
            for name in names
        ]
    )
    yield Place(names[0], (names[1], names[2]))
    for scoped in ("clusterrolebinding", "clusterrole"):
        for part in ("", ":view", ":edit"):
            kubectl("delete", scoped, f"{names[0]}:millrace{part}", "--ignore-not-found")
    kubectl("delete", "namespace", *names, "--wait=false")


def connection(namespaces: tuple[str, ...]) -> list[str]:
    return [
        "defaultConnection.enabled=true",
        f"defaultConnection.namespaces={{{','.join(namespaces)}}}",
        "defaultConnection.serviceUrl=pulsar://pulsar.pulsar.svc:6650",
        "defaultConnection.adminUrl=http://pulsar.pulsar.svc:8080",
        "defaultConnection.pulsarNamespaces={public/default}",
    ]


def test_every_object_is_taken_and_the_pods_are_restricted_ones(place: Place) -> None:
    values = ["networkPolicy.enabled=true", "metrics.serviceMonitor.enabled=true", *connection(place.teams)]
    documents = [item for item in place.rendered(*values) if item["kind"] not in ELSEWHERE]
    done = apply(
        documents, "--dry-run=server", "--field-manager=chart-test", "--force-conflicts", "--validate=strict"
    )
    assert len(done.stdout.splitlines()) == len(documents)
    assert "PodSecurity" not in done.stderr, done.stderr


def test_a_cluster_wide_operator_watches_everything_and_reads_secrets_only_where_told(place: Place) -> None:
    told, other = place.teams
    documents = place.rendered(f"secretNamespaces={{{told}}}")
    apply([item for item in documents if item["kind"] in RIGHTS])
    assert place.may("watch", OURS, "*")
    assert place.may("patch", OURS, other)
    assert place.may("get", "namespaces", "*", "kube-system")
    assert place.may("get", "secrets", told)
    assert place.may("update", "leases.coordination.k8s.io", place.release, "millrace")
    refused = [
        place.may("get", "secrets", other),
        place.may("get", "secrets", "kube-system"),
        place.may("get", "secrets", "*"),
        place.may("list", "secrets", told),
        place.may("get", "configmaps", other),
        place.may("get", "namespaces", "*", "default"),
        place.may("delete", "leases.coordination.k8s.io", other),
        place.may("delete", "configmaps", other),
        place.may("escalate", "roles.rbac.authorization.k8s.io", other),
        place.may("bind", "roles.rbac.authorization.k8s.io", other),
        place.may("create", "pulsarconnections.millrace.dev", told),
        place.may("delete", OURS, told),
        place.may("create", "pods", place.release),
    ]
    assert not any(refused), refused


def test_a_namespaced_operator_has_no_right_outside_of_its_namespaces(place: Place) -> None:
    ours, other = place.teams
    values = [f"watchNamespaces={{{ours}}}", "clusterId=test", *connection((ours,))]
    apply([item for item in place.rendered(*values) if item["kind"] in RIGHTS])
    for verb, resource in (
        ("watch", OURS),
        ("patch", OURS),
        ("get", "secrets"),
        ("create", "events"),
        ("watch", "subscriptions.millrace.dev"),
        ("patch", "deployments.apps"),
        ("create", "roles.rbac.authorization.k8s.io"),
        ("update", "leases.coordination.k8s.io"),
    ):
        assert place.may(verb, resource, ours)
        assert not place.may(verb, resource, other)
        assert not place.may(verb, resource, "*")
    assert place.may("create", "pulsarconnections.millrace.dev", ours)
    assert place.may("patch", "pulsarconnections.millrace.dev", ours, "default")
    assert not place.may("patch", "pulsarconnections.millrace.dev", ours, "another")
    assert not place.may("get", "namespaces", "*", "kube-system")


def test_people_who_view_or_edit_a_namespace_can_do_so_with_our_kinds(place: Place) -> None:
    apply([item for item in place.rendered("clusterId=test") if item["kind"] in RIGHTS])
    team = place.teams[0]
    for person, role in (("viewer", "view"), ("editor", "edit")):
        kubectl("create", "rolebinding", person, f"--clusterrole={role}", f"--user={person}", "-n", team)

    def may(person: str, verb: str, resource: str = OURS, *options: str) -> bool:
        answer = kubectl("auth", "can-i", verb, resource, *options, "--as", person, "-n", team)
        return answer.stdout.strip() == "yes"

    assert may("viewer", "list")
    assert may("editor", "create")
    assert may("editor", "delete", "pulsarconnections.millrace.dev")
    assert may("editor", "patch", "subscriptions.millrace.dev", "--subresource=scale")
    assert not may("viewer", "patch", "subscriptions.millrace.dev", "--subresource=scale")
    assert not may("viewer", "create")
    assert not may("editor", "patch", OURS, "--subresource=status")
