"""Sealed ends on a real broker, in each of the states in which the broker's own answer is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import subprocess
import threading
from collections.abc import Callable

import pulsar
import pytest

from millrace.core.positions import EMPTY, EntryId
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import NotFound, TopicTerminated, from_client
from millrace.pulsar.tables import entry_of
from millrace.pulsar.termination import seal_partition, sealed_end
from tests.support.waiting import eventually


async def send(client: pulsar.Client, topic: str, count: int, *, batched: bool = False) -> list[EntryId]:
    """Send and wait for every acknowledgement; the entries in the order of the messages."""

    def run() -> list[EntryId]:
        producer = client.create_producer(
            topic, batching_enabled=batched, batching_max_messages=7, batching_max_publish_delay_ms=1000
        )
        acknowledged: list[EntryId] = []

        def done(result: object, message_id: pulsar.MessageId) -> None:
            assert result == pulsar.Result.Ok
            acknowledged.append(entry_of(message_id))

        for number in range(count):
            producer.send_async(b"%d" % number, done)
        producer.flush()
        producer.close()
        return acknowledged

    acknowledged = await blocking(run)
    assert len(acknowledged) == count
    return acknowledged


async def read_up_to(client: pulsar.Client, topic: str, end: EntryId) -> list[bytes]:
    """What a reader sees up to the sealed end, and that nothing follows it."""

    def run() -> list[bytes]:
        seen: list[bytes] = []
        at = EMPTY
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        try:
            while at < end:
                message = reader.read_next(10_000)
                at = entry_of(message.message_id())
                seen.append(message.data())
            while True:
                message = reader.read_next(300)
                assert entry_of(message.message_id()) <= end, "a message after the sealed end"
                seen.append(message.data())
        except pulsar.Timeout:
            return seen
        finally:
            reader.close()

    return await blocking(run)


async def partition_of(admin: Admin, topic: str) -> str:
    await admin.create_partitioned_topic(topic, 1, {})
    return f"{topic}-partition-0"


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
async def test_the_sealed_end_is_the_last_acknowledged_entry(
    admin: Admin, client: pulsar.Client, topic: str, batched: bool
) -> None:
    partition = await partition_of(admin, topic)
    acknowledged = await send(client, partition, 50, batched=batched)
    assert await sealed_end(admin, partition) is None
    end = await seal_partition(admin, partition)
    assert end == max(acknowledged)
    assert await read_up_to(client, partition, end) == [b"%d" % number for number in range(50)]


async def test_a_partition_that_was_never_written_to_is_empty(admin: Admin, topic: str) -> None:
    partition = await partition_of(admin, topic)
    assert await seal_partition(admin, partition) == EMPTY
    await admin.unload(partition)
    assert await sealed_end(admin, partition) == EMPTY


async def test_an_unload_before_sealing_is_harmless(admin: Admin, client: pulsar.Client, topic: str) -> None:
    partition = await partition_of(admin, topic)
    acknowledged = await send(client, partition, 5)
    await admin.unload(partition)
    end = await seal_partition(admin, partition)
    assert end == acknowledged[-1]
    assert len(await read_up_to(client, partition, end)) == 5


async def test_unloads_before_and_after_the_seal_do_not_move_the_end(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    partition = await partition_of(admin, topic)
    await send(client, partition, 5)
    await admin.unload(partition)
    acknowledged = await send(client, partition, 3)
    await admin.unload(partition)
    await admin.unload(partition)
    end = await seal_partition(admin, partition)
    assert end == acknowledged[-1]
    await admin.unload(partition)
    assert await sealed_end(admin, partition) == end
    assert await seal_partition(admin, partition) == end
    assert len(await read_up_to(client, partition, end)) == 8


async def test_an_open_ledger_that_is_sealed_and_then_closed_keeps_its_end(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    partition = await partition_of(admin, topic)
    acknowledged = await send(client, partition, 5)
    assert await seal_partition(admin, partition) == acknowledged[-1]
    await admin.unload(partition)
    assert await sealed_end(admin, partition) == acknowledged[-1]


async def test_what_was_consumed_and_trimmed_leaves_an_empty_partition(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    partition = await partition_of(admin, topic)
    await admin.create_subscription(partition, "all")
    await send(client, partition, 4)

    def consume() -> None:
        consumer = client.subscribe(partition, "all")
        for _ in range(4):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.close()

    await blocking(consume)
    await admin.unload(partition)

    async def trimmed() -> bool:
        return (await admin.internal_stats(partition)).entries == 0

    await eventually(trimmed)
    assert await seal_partition(admin, partition) == EMPTY
    await admin.unload(partition)
    assert await sealed_end(admin, partition) == EMPTY


async def test_a_producer_of_a_sealed_one_is_told(admin: Admin, client: pulsar.Client, topic: str) -> None:
    partition = await partition_of(admin, topic)
    await seal_partition(admin, partition)
    with pytest.raises(pulsar.TopicTerminated) as caught:
        await blocking(client.create_producer, partition)
    assert isinstance(from_client(caught.value, "send"), TopicTerminated)


async def test_sealing_what_does_not_exist_says_so(admin: Admin, topic: str) -> None:
    with pytest.raises(NotFound, match=topic):
        await seal_partition(admin, f"{topic}-partition-0")


async def test_partitions_sealed_while_writes_are_in_flight_can_be_read_to_their_ends(
    admin: Admin, client: pulsar.Client, fresh: Callable[[], str]
) -> None:
    """Without the unload the broker leaves such a partition fenced for ever, now and then."""
    for _ in range(5):
        partition = await partition_of(admin, fresh())
        producer = await blocking(client.create_producer, partition, block_if_queue_full=True)
        acknowledged: list[EntryId] = []
        stop = threading.Event()

        def done(
            result: object, message_id: pulsar.MessageId, acknowledged: list[EntryId] = acknowledged
        ) -> None:
            if result == pulsar.Result.Ok:
                acknowledged.append(entry_of(message_id))

        def flood(
            producer: pulsar.Producer = producer,
            stop: threading.Event = stop,
            done: Callable[..., None] = done,
        ) -> None:
            while not stop.is_set():
                producer.send_async(b"x" * 1024, done)

        flooding = asyncio.ensure_future(blocking(flood))
        await eventually(lambda acknowledged=acknowledged: len(acknowledged) > 300)
        end = await seal_partition(admin, partition)
        stop.set()
        with contextlib.suppress(pulsar.PulsarException):
            await flooding
        with contextlib.suppress(pulsar.PulsarException):
            await blocking(producer.close)
        assert max(acknowledged) <= end
        assert len(await read_up_to(client, partition, end)) >= len(acknowledged)


@pytest.mark.full
@pytest.mark.skipif("PULSAR_RESTART_COMMAND" not in os.environ, reason="no command that restarts the broker")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_broker_restart_does_not_move_the_end(
    admin: Admin, client: pulsar.Client, topic: str, when: str
) -> None:
    partition = await partition_of(admin, topic)
    acknowledged = await send(client, partition, 20, batched=True)
    if when == "after":
        assert await seal_partition(admin, partition) == max(acknowledged)
    await blocking(subprocess.run, shlex.split(os.environ["PULSAR_RESTART_COMMAND"]), check=True)
    assert await seal_partition(admin, partition) == max(acknowledged)
    assert len(await read_up_to(client, partition, max(acknowledged))) == 20
