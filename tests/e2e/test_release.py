"""The release's life: upgraded, rolled back, uninstalled and installed again, and nothing is created anew.

Every test puts the release back as it found it, whatever happens, because all other tests need it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.workload import Workload
from millrace.client import Connection
from millrace.pulsar.admin import Admin
from millrace.pulsar.errors import NotFound
from tests.e2e import cluster, helm
from tests.e2e.cluster import Manifest
from tests.e2e.helm import CRDS, Release
from tests.e2e.test_switch_under_load import judge, load, switch
from tests.support import pulsar as support
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        os.environ.get("MILLRACE_USE_CLUSTER", "0") not in {"", "0"},
        reason="takes the release away for a while: only in a sandbox",
    ),
]

KEEP = "helm.sh/resource-policy"
RELEASED_BY = {"meta.helm.sh/release-name": cluster.RELEASE}
Given = tuple[Release, Manifest]


@pytest.fixture
async def given(namespace: str) -> AsyncIterator[Given]:
    """The release and its values. Built on `namespace`: the release is back before that is cleared."""
    release = helm.under_test()
    values = await release.values()
    try:
        yield release, values
    finally:
        await release.install(values)


def changed(values: Manifest) -> Manifest:
    """Values that restart the pods."""
    return {**values, "log": {"level": "DEBUG"}, "podAnnotations": {"example.com/values": "changed"}}


async def a_topic_becomes_ready(name: str, namespace: str) -> None:
    """The proof that somebody leads: a `Ready` from before says nothing."""
    await cluster.apply(cluster.composite_topic(name, namespace, 2))
    await cluster.ready(name, namespace)


async def assert_the_definitions_belong_to_the_release() -> None:
    found = await helm.definitions()
    assert found.keys() == set(CRDS)
    for metadata in found.values():
        assert metadata["annotations"][KEEP] == "keep"
        assert metadata["annotations"].items() >= RELEASED_BY.items()
        assert "deletionTimestamp" not in metadata


async def test_helm_test_passes(given: Given) -> None:
    release, _ = given
    assert "Phase:          Succeeded" in await release.test()


async def test_an_upgrade_and_a_rollback_create_nothing_anew(namespace: str, given: Given) -> None:
    release, values = given
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 4, pointer=1))
    await cluster.ready("orders", namespace)
    before = await helm.identity("orders", namespace)
    definitions = {name: each["uid"] for name, each in (await helm.definitions()).items()}
    pods = await release.pods()

    await release.install(changed(values))
    assert not pods & await release.pods(), "these values restart the pods"
    await a_topic_becomes_ready("after-the-upgrade", namespace)
    assert await helm.identity("orders", namespace) == before

    await release.roll_back()
    assert (await release.values()) == values
    await a_topic_becomes_ready("after-the-rollback", namespace)
    assert await helm.identity("orders", namespace) == before
    assert {name: each["uid"] for name, each in (await helm.definitions()).items()} == definitions
    await assert_the_definitions_belong_to_the_release()


async def test_the_definitions_go_forward_and_back_with_the_chart_and_pods_do_not_restart_for_it(
    given: Given, tmp_path: Path
) -> None:
    release, values = given
    # The image is the same: what differs is the chart alone.
    await release.install(values)
    pods = await release.pods()
    await release.install(values, helm.newer_chart(tmp_path))
    upgraded = await helm.definitions()
    newer = {metadata["annotations"].get("example.com/chart") for metadata in upgraded.values()}
    assert newer == {(await release.history())[-1]["chart"].removeprefix("millrace-")}
    await assert_the_definitions_belong_to_the_release()

    await release.roll_back()
    for name, metadata in (await helm.definitions()).items():
        assert "example.com/chart" not in metadata["annotations"]
        assert metadata["uid"] == upgraded[name]["uid"]
    await assert_the_definitions_belong_to_the_release()
    assert await release.pods() == pods


@pytest.mark.full
async def test_order_holds_through_upgrades_and_rollbacks(
    namespace: str, given: Given, connection: Connection, tmp_path: Path
) -> None:
    release, values = given
    await cluster.apply(cluster.composite_topic("orders", namespace, 4, 12, pointer=1))
    await cluster.ready("orders", namespace)
    before = await helm.identity("orders", namespace)
    first = int((await release.history())[-1]["revision"])
    newer = helm.newer_chart(tmp_path)
    async with load(connection, namespace, "orders") as workload:
        for number, step in enumerate(
            (
                lambda: release.install(changed(values)),
                lambda: release.install({**values, "podAnnotations": {"example.com/values": "newer"}}, newer),
                release.roll_back,
                lambda: release.roll_back(first),
            )
        ):
            written = workload.acknowledged
            await step()
            await a_topic_becomes_ready(f"after-{number}", namespace)
            assert workload.acknowledged > written, "nothing was written meanwhile"
    kept_its_promise(workload)
    assert await helm.identity("orders", namespace) == before
    await cluster.ready("orders", namespace)


def kept_its_promise(workload: Workload) -> None:
    verdict = workload.checker.verdict()
    assert not verdict.violations, verdict.violations[:3]
    assert not verdict.missing, dict(list(verdict.missing.items())[:3])
    assert not workload.stored_twice, workload.stored_twice[:3]
    assert workload.acknowledged == verdict.sent, "a send was never acknowledged"
    assert verdict.repeats == 0, "no consumer was disturbed, so nothing may come twice"


@pytest.mark.full
async def test_order_holds_when_the_topic_is_switched_during_an_upgrade(
    namespace: str, given: Given, connection: Connection
) -> None:
    release, values = given

    async def upgrade(namespace: str, name: str) -> None:
        await release.install(changed(values))

    await cluster.apply(cluster.composite_topic("orders", namespace, 4, 12, 6, 24))
    await cluster.ready("orders", namespace)
    async with load(connection, namespace, "orders") as workload:
        await switch(namespace, "orders", upgrade)
    judge(workload)


async def test_uninstalling_keeps_all_objects_and_reinstalling_goes_on_with_them(
    namespace: str, given: Given
) -> None:
    release, values = given
    for name in ("orders", "invoices"):
        await cluster.apply(cluster.composite_topic(name, namespace, 2, 4, pointer=1))
        await cluster.ready(name, namespace)
    before = await helm.identity("orders", namespace)
    definitions = {name: each["uid"] for name, each in (await helm.definitions()).items()}

    await release.uninstall()
    assert await release.pods() == set()
    assert {name: each["uid"] for name, each in (await helm.definitions()).items()} == definitions
    assert await helm.identity("orders", namespace) == before
    await cluster.apply(cluster.composite_topic("invoices", namespace, 2, 4, 8, pointer=2))

    await release.install(values)
    grown = await cluster.ready("invoices", namespace)
    assert grown["producePointer"] == 2
    await a_topic_becomes_ready("new", namespace)
    assert await helm.identity("orders", namespace) == before
    await assert_the_definitions_belong_to_the_release()


async def test_a_namespace_with_retained_topics_can_be_deleted_after_the_chart_is_gone(given: Given) -> None:
    release, _ = given
    doomed = f"e2e-{uuid.uuid4().hex[:8]}"
    await cluster.create_connected_namespace(doomed)
    await cluster.apply(cluster.composite_topic("orders", doomed, 2))
    status = await cluster.ready("orders", doomed)
    topics = [*(each["topic"] for each in status["storageTopics"]), status["descriptorTopic"]]
    async with cluster.admin() as admin:
        try:
            await release.uninstall()
            await cluster.kubectl("delete", "namespace", doomed, "--timeout=60s")
            assert [await exists(admin, topic) for topic in topics] == [True, True], "the data is retained"
        finally:
            await cluster.kubectl("delete", "namespace", doomed, "--ignore-not-found", "--wait=false")
            await support.remove(admin, *topics)


async def exists(admin: Admin, topic: str) -> bool:
    try:
        await admin.internal_stats(topic)
    except NotFound:
        pass
    else:
        return True
    try:
        await admin.partitioned_topic(topic)
    except NotFound:
        return False
    return True


# A release that is confined to a namespace


@dataclass(frozen=True, slots=True)
class Confined:
    """A release with `watchNamespaces`, the namespace that it watches, and one that it does not."""

    release: Release
    watched: str
    other: str

    async def may(self, verb: str, resource: str, namespace: str, group: str = "") -> bool:
        """What the authorizer says of its account; no namespace means everywhere."""
        asked = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
        account = f"system:serviceaccount:{self.release.namespace}:{self.release.name}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self.release.namespace}"]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": account,
                "groups": [*groups, "system:authenticated"],
                "resourceAttributes": asked,
            },
        }
        told = await cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
        return bool(json.loads(told)["status"]["allowed"])


@pytest.fixture
async def confined(given: Given) -> AsyncIterator[Confined]:
    """The other release sleeps meanwhile: it watches every namespace, and would want the same topics."""
    release, values = given
    suffix = uuid.uuid4().hex[:8]
    made = Confined(
        Release("millrace-team", f"team-{suffix}"), f"team-{suffix}-watched", f"team-{suffix}-other"
    )
    deployment = f"deployment/{release.name}"
    replicas = json.loads(
        await cluster.kubectl("get", deployment, "-n", release.namespace, "-o", "jsonpath={.spec.replicas}")
    )
    await cluster.kubectl("scale", deployment, "-n", release.namespace, "--replicas=0")
    try:
        await eventually(lambda: nobody_runs(release), timeout=60)
        for name in (made.release.namespace, made.watched, made.other):
            await cluster.create_connected_namespace(name)
        await made.release.install(
            {
                "image": values["image"],
                "clusterId": f"team-{suffix}",
                "watchNamespaces": [made.watched],
                "crds": {"install": False},
            }
        )
        yield made
        # Its own topics have its own cluster id: nobody else could delete them.
        await cluster.remove_namespace_with_data(made.watched)
        await made.release.uninstall()
    finally:
        await cluster.kubectl("scale", deployment, "-n", release.namespace, f"--replicas={replicas}")
        for name in (made.release.namespace, made.watched, made.other):
            await cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")
        await cluster.operator_available()


async def nobody_runs(release: Release) -> bool:
    selector = f"app.kubernetes.io/instance={release.name},app.kubernetes.io/component=operator"
    return not await cluster.kubectl("get", "pods", "-n", release.namespace, "-l", selector, "-o", "name")


async def test_a_namespaced_release_serves_its_namespace_and_has_no_rights_elsewhere(
    confined: Confined,
) -> None:
    await cluster.apply(cluster.composite_topic("orders", confined.other, 2))
    await a_topic_becomes_ready("orders", confined.watched)
    assert "conditions" not in await cluster.status("orders", confined.other)
    assert "Succeeded" in await confined.release.test()

    ours = ("watch", "compositetopics", "millrace.dev")
    for verb, resource, group in (ours, ("patch", "compositetopics", "millrace.dev"), ("get", "secrets", "")):
        assert await confined.may(verb, resource, confined.watched, group)
        assert not await confined.may(verb, resource, confined.other, group)
        assert not await confined.may(verb, resource, "", group)
    bindings = json.loads(await cluster.kubectl("get", "clusterrolebindings", "-o", "json"))["items"]
    assert not [
        binding["metadata"]["name"]
        for binding in bindings
        for subject in binding.get("subjects", [])
        if subject.get("namespace") == confined.release.namespace
    ]
    owned = f"app.kubernetes.io/instance={confined.release.name}"
    assert not await cluster.kubectl("get", "clusterroles,crd", "-l", owned, "-o", "name")
