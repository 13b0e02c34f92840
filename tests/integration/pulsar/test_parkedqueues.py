"""The single writer of a parked queue's partition on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pulsar
import pytest

from millrace.core.positions import Position
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Fenced, TopicTerminated
from millrace.pulsar.parkedqueues import ParkedQueue
from millrace.pulsar.termination import seal_partition
from tests.support.pulsar import open_client


@pytest.fixture
async def partition(admin: Admin, topic: str) -> str:
    await admin.create_partitioned_topic(topic, 1, {})
    return f"{topic}-partition-0"


@pytest.fixture
async def queue(client: pulsar.Client, partition: str) -> AsyncIterator[ParkedQueue]:
    queue = await ParkedQueue.open(client, partition, storage_topic=3)
    yield queue
    await queue.close()


async def drained(queue: ParkedQueue) -> None:
    async with asyncio.timeout(60):
        await queue.drain()


async def read_all(client: pulsar.Client, partition: str, count: int) -> list[pulsar.Message]:
    def read() -> list[pulsar.Message]:
        reader = client.create_reader(partition, pulsar.MessageId.earliest)
        try:
            return [reader.read_next(20_000) for _ in range(count)]
        finally:
            reader.close()

    return await blocking(read)


async def read_up_to(client: pulsar.Client, partition: str, end: Position) -> list[pulsar.Message]:
    def read() -> list[pulsar.Message]:
        found: list[pulsar.Message] = []
        reader = client.create_reader(partition, pulsar.MessageId.earliest)
        try:
            while True:
                found.append(reader.read_next(60_000))
                last = found[-1].message_id()
                if (last.ledger_id(), last.entry_id(), last.batch_index()) >= (*end.entry_id, end.batch):
                    return found
        finally:
            reader.close()

    return await blocking(read)


def produce(queue: ParkedQueue, count: int, first: int = 0) -> list[Position | None]:
    where: list[Position | None] = []
    for number in range(first, first + count):
        queue.produce(str(number).encode(), f"g{number % 7}", {"n": str(number)}, where.append)
    return where


async def test_a_copy_is_stored_with_all_that_it_carries_and_where_it_is_told(
    client: pulsar.Client, partition: str, queue: ParkedQueue
) -> None:
    where: list[Position | None] = []
    queue.produce(b"\x00\xff", "grüppe", {"mr-main": "0:1:2:3", "mr": "me:7"}, where.append)
    queue.produce(b"", "empty", {}, where.append)
    await drained(queue)
    found = await read_all(client, partition, 2)
    assert [message.data() for message in found] == [b"\x00\xff", b""]
    assert [message.partition_key() for message in found] == ["grüppe", "empty"]
    assert found[0].properties() == {"mr-main": "0:1:2:3", "mr": "me:7"}
    ids = [message.message_id() for message in found]
    assert where == [Position(3, each.ledger_id(), each.entry_id(), each.batch_index()) for each in ids]


async def test_copies_keep_their_order_through_unloads(
    admin: Admin, client: pulsar.Client, partition: str, queue: ParkedQueue
) -> None:
    before = produce(queue, 3000)
    await admin.unload(partition)
    after = produce(queue, 12_000, 3000)
    await drained(queue)
    assert queue.reason is None
    positions = [position for position in (*before, *after) if position is not None]
    assert len(positions) == 15_000
    assert positions == sorted(set(positions))
    found = {
        Position(3, each.ledger_id(), each.entry_id(), each.batch_index()): int(message.data())
        for message in await read_up_to(client, partition, positions[-1])
        for each in [message.message_id()]
    }
    assert [found[position] for position in positions] == list(range(15_000))


async def test_opening_evicts_the_owner_before(
    client: pulsar.Client, partition: str, queue: ParkedQueue
) -> None:
    await drained(queue)
    async with open_client() as other:
        heir = await ParkedQueue.open(other, partition)
        stale = produce(queue, 1)
        async with asyncio.timeout(20):
            await queue.lost.wait()
        assert isinstance(queue.reason, Fenced)
        assert stale == []
        where = produce(heir, 2, first=10)
        await drained(heir)
        assert len(where) == 2
        await heir.close()
    assert [message.data() for message in await read_all(client, partition, 2)] == [b"10", b"11"]


async def test_a_copy_that_is_too_large_is_refused_alone(
    client: pulsar.Client, partition: str, queue: ParkedQueue
) -> None:
    stored: list[Position | None] = []
    refused: list[Position | None] = []
    queue.produce(b"before", "a", {}, stored.append)
    queue.produce(bytes(5 * 1024 * 1024 + 1), "b", {}, refused.append)
    queue.produce(b"after", "c", {}, stored.append)
    await drained(queue)
    assert refused == [None]
    assert len(stored) == 2
    assert None not in stored
    assert not queue.lost.is_set()
    assert [message.data() for message in await read_all(client, partition, 2)] == [b"before", b"after"]


async def test_a_sealed_partition_is_lost_with_its_reason(
    admin: Admin, partition: str, queue: ParkedQueue
) -> None:
    await seal_partition(admin, partition)
    produce(queue, 1)
    async with asyncio.timeout(20):
        await queue.lost.wait()
    assert isinstance(queue.reason, TopicTerminated), queue.reason


async def test_nothing_is_called_back_after_a_close(queue: ParkedQueue) -> None:
    where = produce(queue, 100)
    await queue.close()
    assert queue.lost.is_set()
    assert queue.reason is None
    assert where == []
