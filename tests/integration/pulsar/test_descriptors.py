"""Descriptors on a real broker: who may write, who is refused, who learns of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pulsar
import pytest

from millrace.core.descriptor import Descriptor, append, initial
from millrace.core.routing import Routing
from millrace.pulsar import descriptors, tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.descriptors import BARRIER_KEY, DESCRIPTOR_KEY, DescriptorFollower
from millrace.pulsar.errors import Conflict, StaleDescriptor, UnreadableDescriptor
from tests.support.pulsar import open_client
from tests.support.waiting import eventually

OWNER = {"millrace.dev/name": "orders"}


def generation(number: int, name: str = "orders") -> Descriptor:
    """A valid descriptor of this generation: one storage topic more each time."""
    descriptor = initial(name, Routing.RANGE, [(f"persistent://t/ns/{name}-0", 4, False)])
    for index in range(1, number):
        descriptor = append(descriptor, [(f"persistent://t/ns/{name}-{index}", 4, False)])
    return descriptor


@pytest.fixture
async def ready(admin: Admin, topic: str) -> str:
    await descriptors.ensure_descriptor_topic(admin, topic, OWNER)
    return topic


async def publish_up_to(client: pulsar.Client, topic: str, last: int) -> None:
    for number in range(1, last + 1):
        await descriptors.publish(client, topic, generation(number), expected_generation=number - 1)


async def test_what_was_published_is_read(client: pulsar.Client, ready: str) -> None:
    assert await descriptors.read(client, ready) is None
    await publish_up_to(client, ready, 2)
    assert await descriptors.read(client, ready) == generation(2)


async def test_of_two_publishers_with_the_same_expectation_exactly_one_wins(
    client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 1)
    async with open_client() as other:
        rivals = [generation(2, name) for name in ("one", "two")]
        outcomes = await asyncio.gather(
            *(
                descriptors.publish(who, ready, what, expected_generation=1)
                for who, what in zip((client, other), rivals, strict=True)
            ),
            return_exceptions=True,
        )
        # One that was overtaken between its comparison and its write is fenced, and is told to read again.
        losers = [index for index, outcome in enumerate(outcomes) if outcome is not None]
        assert len(losers) == 1, outcomes
        (loser,) = losers
        assert getattr(outcomes[loser], "retryable", False), outcomes
        assert await descriptors.read(client, ready) == rivals[1 - loser]
        with pytest.raises(StaleDescriptor) as caught:
            await descriptors.publish((client, other)[loser], ready, rivals[loser], expected_generation=1)
    assert (caught.value.found, caught.value.expected) == (2, 1)


async def test_a_publisher_that_opened_before_is_fenced(client: pulsar.Client, ready: str) -> None:
    old = await blocking(tables.open_fenced_producer, client, ready)
    async with open_client() as other:
        await publish_up_to(other, ready, 1)
    with pytest.raises(pulsar.PulsarException) as caught:
        await blocking(old.send, generation(1, "stale").to_json(), partition_key=DESCRIPTOR_KEY)
    assert isinstance(caught.value, pulsar.ProducerFenced | pulsar.AlreadyClosed), repr(caught.value)
    assert await descriptors.read(client, ready) == generation(1)


async def test_an_old_publisher_that_opens_after_the_new_one_refuses_and_leaves_no_trace(
    client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 1)
    async with open_client() as new:
        await descriptors.publish(new, ready, generation(2), expected_generation=1)
    with pytest.raises(StaleDescriptor, match="holds generation 2, not 1"):
        await descriptors.publish(client, ready, generation(2, "stale"), expected_generation=1)
    assert await descriptors.read(client, ready) == generation(2)


async def test_an_unload_hides_no_generation_from_a_publisher(
    admin: Admin, client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 1)
    await admin.unload(ready)
    with pytest.raises(StaleDescriptor):
        await descriptors.publish(client, ready, generation(1, "stale"), expected_generation=0)
    assert await descriptors.read(client, ready) == generation(1)
    await admin.unload(ready)
    await descriptors.publish(client, ready, generation(2), expected_generation=1)
    assert await descriptors.read(client, ready) == generation(2)


async def test_compaction_keeps_the_newest_descriptor_and_the_comparison(
    admin: Admin, client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 3)
    await admin.compact(ready)

    async def compacted() -> bool:
        answer = await admin.stats(ready)
        return int(answer["compaction"]["lastCompactionSucceedTimestamp"]) > 0

    await eventually(compacted)
    assert await descriptors.read(client, ready) == generation(3)
    with pytest.raises(StaleDescriptor):
        await descriptors.publish(client, ready, generation(3), expected_generation=2)
    await descriptors.publish(client, ready, generation(4), expected_generation=3)
    await admin.unload(ready)
    assert await descriptors.read(client, ready) == generation(4)


async def test_a_generation_that_does_not_follow_is_refused_before_anything_is_sent(
    client: pulsar.Client, ready: str
) -> None:
    with pytest.raises(ValueError, match="generation 3 cannot follow 1"):
        await descriptors.publish(client, ready, generation(3), expected_generation=1)


async def test_a_follower_sees_every_newest_generation_and_survives_unloads(
    admin: Admin, client: pulsar.Client, ready: str
) -> None:
    async with DescriptorFollower(client, ready) as follower:
        assert follower.current is None
        for number in range(1, 4):
            await descriptors.publish(client, ready, generation(number), expected_generation=number - 1)
            seen = await follower.wait_for(lambda found, n=number: found.generation >= n, timeout=20)  # type: ignore[misc]
            assert seen == follower.current == generation(number)
            await admin.unload(ready)


async def test_a_follower_that_starts_late_begins_with_the_present_generation(
    admin: Admin, client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 2)
    await admin.unload(ready)
    async with DescriptorFollower(client, ready) as follower:
        assert await follower.wait_for(lambda found: found.generation == 2, timeout=20) == generation(2)
        assert await anext(follower.changes()) == generation(2)


async def test_a_follower_never_goes_back(client: pulsar.Client, ready: str) -> None:
    await publish_up_to(client, ready, 3)
    async with DescriptorFollower(client, ready) as follower:
        await follower.wait_for(lambda found: found.generation == 3, timeout=20)

        def write_an_older_one() -> None:
            producer = tables.open_fenced_producer(client, ready)
            producer.send(generation(1).to_json(), partition_key=DESCRIPTOR_KEY)
            producer.send(generation(4).to_json(), partition_key=DESCRIPTOR_KEY)
            producer.close()

        await blocking(write_an_older_one)
        seen = []
        async with asyncio.timeout(20):
            async for descriptor in follower.changes():
                seen.append(descriptor.generation)
                if descriptor.generation == 4:
                    break
        assert 1 not in seen


async def test_a_follower_says_when_it_cannot_read_and_goes_on_when_it_can(
    client: pulsar.Client, ready: str
) -> None:
    await publish_up_to(client, ready, 1)
    async with DescriptorFollower(client, ready) as follower:
        await follower.wait_for(lambda found: True, timeout=20)

        def write(data: bytes) -> None:
            producer = tables.open_fenced_producer(client, ready)
            producer.send(data, partition_key=DESCRIPTOR_KEY)
            producer.close()

        await blocking(write, generation(2).to_json().replace(b'"oldestReader":1', b'"oldestReader":99'))
        with pytest.raises(UnreadableDescriptor, match="upgrade this program"):
            await follower.wait_for(lambda found: found.generation > 1, timeout=20)
        assert follower.current == generation(1)
        with pytest.raises(UnreadableDescriptor, match=ready):
            await descriptors.read(client, ready)
        await blocking(write, generation(3).to_json())
        await eventually(lambda: follower.current == generation(3))


async def test_waiting_for_what_does_not_come_times_out(client: pulsar.Client, ready: str) -> None:
    async with DescriptorFollower(client, ready) as follower:
        with pytest.raises(TimeoutError):
            await follower.wait_for(lambda found: True, timeout=0.2)


async def test_many_followers_share_a_client_and_close_at_any_time(client: pulsar.Client, ready: str) -> None:
    followers = [DescriptorFollower(client, ready) for _ in range(60)]
    for follower in followers:
        follower.start()
    await asyncio.gather(*(follower.close() for follower in followers[:20]))
    await publish_up_to(client, ready, 1)
    async with asyncio.timeout(30):
        await asyncio.gather(*(follower.wait_for(lambda found: True) for follower in followers[20:]))
        await asyncio.gather(*(follower.close() for follower in followers[20:]))


async def test_the_topic_is_made_in_four_calls_so_that_nothing_is_lost(admin: Admin, topic: str) -> None:
    operations: list[str] = []
    async with Admin(
        admin.credentials, observer=lambda m, operation, s, t: operations.append(operation)
    ) as counted:
        await descriptors.ensure_descriptor_topic(counted, topic, OWNER)
    assert operations == [
        "create_topic",
        "set_inactive_policy",
        "set_compaction_threshold",
        "create_subscription",
    ]
    assert await admin.properties(topic) == OWNER
    assert await admin.inactive_policy(topic) is False
    assert await admin.compaction_threshold(topic) == descriptors.COMPACTION_THRESHOLD
    assert descriptors.COMPACTION_CURSOR in (await admin.internal_stats(topic)).cursors


async def test_making_it_again_changes_nothing(admin: Admin, client: pulsar.Client, ready: str) -> None:
    await publish_up_to(client, ready, 1)
    await descriptors.ensure_descriptor_topic(admin, ready, OWNER)
    assert await descriptors.read(client, ready) == generation(1)


async def test_a_topic_of_somebody_else_is_not_touched(admin: Admin, topic: str) -> None:
    await admin.create_topic(topic, {"millrace.dev/name": "theirs"})
    with pytest.raises(Conflict, match="not ours"):
        await descriptors.ensure_descriptor_topic(admin, topic, OWNER)
    assert await admin.compaction_threshold(topic) is None
    assert await admin.properties(topic) == {"millrace.dev/name": "theirs"}
    await descriptors.ensure_descriptor_topic(admin, topic, OWNER, may_use=lambda properties: True)


async def test_a_topic_that_a_curious_client_made_the_broker_create_is_taken_over(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    async with DescriptorFollower(client, topic) as follower:

        async def created() -> bool:
            return topic.rpartition("/")[2] in str(await admin.topics("public/default"))

        await eventually(created)
        await descriptors.ensure_descriptor_topic(admin, topic, OWNER)
        assert await admin.properties(topic) == OWNER
        await publish_up_to(client, topic, 1)
        assert await follower.wait_for(lambda found: True, timeout=20) == generation(1)


async def test_a_bare_topic_that_somebody_wrote_to_is_not_taken_over(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    def write() -> None:
        producer = client.create_producer(topic)
        producer.send(b"theirs")
        producer.close()

    await blocking(write)
    with pytest.raises(Conflict):
        await descriptors.ensure_descriptor_topic(admin, topic, OWNER)
    await admin.unload(topic)
    with pytest.raises(Conflict):
        await descriptors.ensure_descriptor_topic(admin, topic, OWNER)


async def test_the_barrier_is_no_descriptor(client: pulsar.Client, ready: str) -> None:
    with pytest.raises(StaleDescriptor, match="holds generation 0, not 5"):
        await descriptors.publish(client, ready, replace(generation(1), generation=6), expected_generation=5)
    assert await descriptors.read(client, ready) is None
    assert set(await tables.read_to_end(client, ready)) == {BARRIER_KEY}
