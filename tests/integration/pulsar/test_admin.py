"""The admin API as a real broker speaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from millrace.pulsar.admin import Admin, PartitionedTopic, Retention
from millrace.pulsar.errors import Conflict, NotFound, PreconditionFailed
from millrace.pulsar.risks import namespace_risks
from tests.support import pulsar as support
from tests.support.waiting import eventually


async def test_a_partitioned_topic_is_created_with_its_properties(admin: Admin, topic: str) -> None:
    assert await admin.create_partitioned_topic(topic, 3, {"a": "b"})
    assert await admin.partitioned_topic(topic) == PartitionedTopic(3, {"a": "b"})
    assert topic in await admin.partitioned_topics(support.NAMESPACE)


async def test_creating_what_exists_says_so_and_changes_nothing(
    admin: Admin, fresh: Callable[[], str]
) -> None:
    partitioned, single = fresh(), fresh()
    assert await admin.create_partitioned_topic(partitioned, 3, {"a": "b"})
    assert await admin.create_topic(single, {"a": "b"})
    for topic in (partitioned, single):
        assert not await admin.create_partitioned_topic(topic, 5, {"c": "d"})
        assert not await admin.create_topic(topic, {"c": "d"})
        assert await admin.properties(topic) == {"a": "b"}
    assert (await admin.partitioned_topic(partitioned)).partitions == 3


async def test_properties_are_added_and_replaced(admin: Admin, topic: str) -> None:
    await admin.create_partitioned_topic(topic, 1, {"a": "b"})
    await admin.update_properties(topic, {"a": "c", "d": "e"})
    assert await admin.partitioned_topic(topic) == PartitionedTopic(1, {"a": "c", "d": "e"})


async def test_what_does_not_exist_is_not_found(admin: Admin, topic: str) -> None:
    with pytest.raises(NotFound):
        await admin.partitioned_topic(topic)
    with pytest.raises(NotFound):
        await admin.internal_stats(topic)
    with pytest.raises(NotFound):
        await admin.create_topic(topic.replace("/default/", "/no-such-namespace/"), {})


async def test_a_non_partitioned_topic_is_no_partitioned_one(admin: Admin, topic: str) -> None:
    await admin.create_topic(topic, {})
    with pytest.raises(NotFound, match="no partitioned topic"):
        await admin.partitioned_topic(topic)


async def test_deleting_twice_is_success(admin: Admin, fresh: Callable[[], str]) -> None:
    partitioned, single = fresh(), fresh()
    await admin.create_partitioned_topic(partitioned, 2, {})
    await admin.create_topic(single, {})
    for _ in range(2):
        await admin.delete_partitioned_topic(partitioned)
        await admin.delete_topic(single)


async def test_a_topic_in_use_is_deleted_only_by_force(admin: Admin, topic: str) -> None:
    await admin.create_partitioned_topic(topic, 1, {})
    async with support.open_client() as client:
        producer = client.create_producer(f"{topic}-partition-0")
        with pytest.raises((Conflict, PreconditionFailed)):
            await admin.delete_partitioned_topic(topic)
        producer.close()
    await admin.delete_partitioned_topic(topic, force=True)


async def test_a_subscription_is_created_once_in_every_partition(admin: Admin, topic: str) -> None:
    await admin.create_partitioned_topic(topic, 2, {})
    name = "namespace.name with/odd characters"
    assert await admin.create_subscription(topic, name)
    assert not await admin.create_subscription(topic, name)
    assert await admin.subscriptions(topic) == [name]
    for partition in range(2):
        assert await admin.subscriptions(f"{topic}-partition-{partition}") == [name]
    await admin.delete_subscription(topic, name)
    assert await admin.subscriptions(topic) == []


async def test_policies_set_at_the_same_time_do_not_undo_each_other(admin: Admin, topic: str) -> None:
    await admin.create_partitioned_topic(topic, 2, {})
    assert await admin.inactive_policy(topic) is None
    assert await admin.get_retention(topic) is None
    assert await admin.compaction_threshold(topic) is None
    await asyncio.gather(
        admin.set_inactive_policy(topic, deletes=False),
        admin.set_retention(topic, Retention(minutes=60, megabytes=-1)),
        admin.set_compaction_threshold(topic, 1000),
    )
    assert await admin.inactive_policy(topic) is False
    assert await admin.get_retention(topic) == Retention(60, -1)
    assert await admin.compaction_threshold(topic) == 1000
    await admin.remove_retention(topic)

    async def removed() -> bool:
        return await admin.get_retention(topic) is None

    await eventually(removed)


async def test_a_plain_namespace_is_no_risk(admin: Admin) -> None:
    assert await namespace_risks(admin, support.NAMESPACE) == ()
