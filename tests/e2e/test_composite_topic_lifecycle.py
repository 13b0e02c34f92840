"""A CompositeTopic's life on a real cluster: applied, grown, paused, deleted, applied again, restored."""

from __future__ import annotations

import json

import pytest

from millrace.pulsar.admin import Admin, Retention
from millrace.pulsar.errors import NotFound
from tests.e2e import cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.e2e


async def exists(admin: Admin, topic: str) -> bool:
    try:
        await admin.partitioned_topic(topic)
    except NotFound:
        return False
    return True


async def test_kubectl_wait_and_the_printer_columns_tell_the_truth(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.kubectl("wait", "ct/orders", "-n", namespace, "--for=condition=Ready", "--timeout=90s")
    line = (await cluster.kubectl("get", "ct", "orders", "-n", namespace, "--no-headers")).split()
    assert line[0] == "orders"
    assert "True" in line
    status = await cluster.status("orders", namespace)
    assert status["observedGeneration"] == status["generation"]
    [topic] = status["storageTopics"]
    assert (topic["partitions"], topic["k"], topic["state"]) == (2, 1, "Ready")


async def test_an_appended_storage_topic_is_created_with_its_k_and_does_not_move_the_pointer(
    namespace: str,
) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12))
    status = await cluster.ready("orders", namespace)
    assert status["producePointer"] == 0
    assert [(topic["partitions"], topic["k"]) for topic in status["storageTopics"]] == [(2, 1), (12, 6)]


async def test_a_switch_shows_the_last_positions_of_the_sealed_topic(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12))
    await cluster.ready("orders", namespace)
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    status = await cluster.ready("orders", namespace)
    sealed, current = status["storageTopics"]
    assert sealed["state"] == "Sealed"
    assert sealed["sealedPartitions"] == 2
    assert sealed["lastPositions"] == ["-1:-1", "-1:-1"], "nothing was ever written"
    assert current["state"] == "Ready"


async def test_every_transition_leaves_an_event(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2))
    await cluster.ready("orders", namespace)

    async def told() -> bool:
        events = json.loads(await cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
        return any(
            event["involvedObject"]["name"] == "orders" and event["reason"] == "Ready" for event in events
        )

    await eventually(told, timeout=30)


async def test_retain_keeps_the_data_and_a_topic_applied_again_takes_it_over(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    before = await cluster.ready("orders", namespace)
    await cluster.kubectl("delete", "ct", "orders", "-n", namespace, "--timeout=60s")
    async with cluster.admin() as admin:
        assert await exists(admin, before["storageTopics"][0]["topic"])
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    after = await cluster.ready("orders", namespace)
    assert after["storageTopics"] == before["storageTopics"]
    assert after["descriptorGeneration"] == before["descriptorGeneration"]


async def test_a_topic_applied_again_with_a_lower_pointer_is_a_conflict_and_nothing_changes(
    namespace: str,
) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    await cluster.ready("orders", namespace)
    await cluster.kubectl("delete", "ct", "orders", "-n", namespace, "--timeout=60s")
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=0))
    await cluster.condition("orders", namespace, "Stalled", "DescriptorConflict")
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    status = await cluster.ready("orders", namespace)
    assert status["producePointer"] == 1


async def test_delete_removes_the_data_and_the_object(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, deletionPolicy="Delete"))
    status = await cluster.ready("orders", namespace)
    await cluster.kubectl("delete", "ct", "orders", "-n", namespace, "--timeout=90s")
    async with cluster.admin() as admin:
        assert not await exists(admin, status["storageTopics"][0]["topic"])


async def test_delete_leaves_an_adopted_topic_and_removes_the_rest(namespace: str) -> None:
    adopted = f"persistent://public/default/{namespace}-adopted"
    async with cluster.admin() as admin:
        await admin.create_partitioned_topic(adopted, 2, {})
        manifest = cluster.composite_topic("orders", namespace, 2, 4, deletionPolicy="Delete")
        manifest["spec"]["storageTopics"][0] |= {"topicName": f"{namespace}-adopted", "adopt": True}
        await cluster.apply(manifest)
        status = await cluster.ready("orders", namespace)
        first, second = (topic["topic"] for topic in status["storageTopics"])
        assert first == adopted
        await cluster.kubectl("delete", "ct", "orders", "-n", namespace, "--timeout=90s")
        assert await exists(admin, adopted)
        assert not await exists(admin, second)
        await admin.delete_partitioned_topic(adopted)


async def test_a_foreign_topic_is_never_changed(namespace: str) -> None:
    topic = f"persistent://public/default/{namespace}-foreign"
    owner = {
        "millrace.dev/cluster": "elsewhere",
        "millrace.dev/namespace": "theirs",
        "millrace.dev/name": "orders",
    }
    async with cluster.admin() as admin:
        await admin.create_partitioned_topic(topic, 2, owner)
        manifest = cluster.composite_topic("orders", namespace, 2)
        manifest["spec"]["storageTopics"] = [
            {"partitions": 2, "topicName": f"{namespace}-foreign", "adopt": True}
        ]
        await cluster.apply(manifest)
        await cluster.condition("orders", namespace, "Stalled", "ForeignOwner")
        found = await admin.partitioned_topic(topic)
        assert {key: found.properties[key] for key in owner} == owner
        await admin.delete_partitioned_topic(topic)


async def test_a_paused_topic_is_left_alone_until_it_is_resumed(namespace: str) -> None:
    manifest = cluster.composite_topic("orders", namespace, 2)
    await cluster.apply(manifest)
    await cluster.ready("orders", namespace)
    await cluster.kubectl("annotate", "ct", "orders", "-n", namespace, "millrace.dev/paused=true")
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12))

    async def says_paused() -> bool:
        status = await cluster.status("orders", namespace)
        return any(item["reason"] == "Paused" for item in status["conditions"])

    await eventually(says_paused, timeout=60)
    assert len((await cluster.status("orders", namespace))["storageTopics"]) == 1
    await cluster.kubectl("annotate", "ct", "orders", "-n", namespace, "millrace.dev/paused-")
    status = await cluster.ready("orders", namespace)
    assert len(status["storageTopics"]) == 2


async def test_a_restored_object_with_an_empty_status_gets_the_same_status_again(namespace: str) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 2, 12, pointer=1))
    before = await cluster.ready("orders", namespace)
    patch = '{"status":null}'
    await cluster.kubectl(
        "patch", "ct", "orders", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
    )
    after = await cluster.ready("orders", namespace)
    assert after["storageTopics"] == before["storageTopics"]
    assert after["descriptorGeneration"] == before["descriptorGeneration"]


async def test_a_policy_that_drifted_is_corrected(namespace: str) -> None:
    await cluster.apply(
        cluster.composite_topic("orders", namespace, 2, retention={"time": "1d", "size": "20Gi"})
    )
    status = await cluster.ready("orders", namespace)
    topic = status["storageTopics"][0]["topic"]
    async with cluster.admin() as admin:
        wanted = await admin.get_retention(topic)
        assert wanted is not None
        await admin.set_retention(topic, Retention(minutes=600, megabytes=30_000))
        await cluster.kubectl("annotate", "ct", "orders", "-n", namespace, "example.com/touched=1")

        async def corrected() -> bool:
            return await admin.get_retention(topic) == wanted

        await eventually(corrected, timeout=60)


async def test_a_retention_that_the_broker_refuses_is_said_and_stops_nothing_else(namespace: str) -> None:
    # Pulsar wants more retained than its backlog quota, which is 10 GB where nobody tuned it.
    await cluster.apply(
        cluster.composite_topic("small", namespace, 2, retention={"time": "1d", "size": "1Gi"}),
        cluster.composite_topic("other", namespace, 2),
    )
    status = await cluster.condition("small", namespace, "Stalled", "InvalidSpec")
    assert any("backlog quota" in each["message"] for each in status["conditions"])
    await cluster.ready("other", namespace)
