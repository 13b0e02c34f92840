"""A shard's partition on a real broker: in order, once, through unloads, to the sealed end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pulsar
import pytest

from millrace.core.positions import EMPTY, EntryId
from millrace.pulsar import sources
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Conflict
from millrace.pulsar.sources import Received, Source
from millrace.pulsar.termination import seal_partition
from tests.support import restarts
from tests.support.pulsar import open_client
from tests.support.waiting import eventually

NAME = "millrace.test.shop.orders"


@pytest.fixture
async def topic(admin: Admin, topic: str) -> str:
    await admin.create_topic(topic, {})
    await admin.create_subscription(topic, NAME)
    return topic


class Reading:
    """A source, and what it brought."""

    def __init__(self, client: pulsar.Client, topic: str, *, acks: bool = True, window: int = 1000) -> None:
        self.messages: list[Received] = []
        self.turns = 0
        self.acks = acks
        self.source = Source(client, topic, NAME, self.take, storage_topic=2, partition=0, window=window)

    def take(self, messages: list[Received]) -> None:
        self.turns += 1
        self.messages += messages
        if self.acks:
            for message in messages:
                self.source.ack(message)

    @property
    def numbers(self) -> list[int]:
        return [int(message.payload) for message in self.messages]

    async def brings(self, count: int) -> None:
        await eventually(
            lambda: len(self.messages) >= count, timeout=60, describe=lambda: f"{len(self.messages)} came"
        )


Open = Callable[..., "asyncio.Future[Reading]"]


@pytest.fixture
async def reading(topic: str) -> AsyncIterator[Open]:
    """Opens the subscription, each time with a client of its own, as each pod has one."""
    async with AsyncExitStack() as stack:

        async def open_reading(*, acks: bool = True, window: int = 1000) -> Reading:
            client = await stack.enter_async_context(open_client())
            made = Reading(client, topic, acks=acks, window=window)
            stack.push_async_callback(made.source.close)
            await made.source.open()
            made.source.resume()
            return made

        yield open_reading  # type: ignore[misc]


async def send(
    client: pulsar.Client, topic: str, count: int, *, first: int = 0, batched: bool = True
) -> None:
    def run() -> None:
        producer = client.create_producer(
            topic, batching_enabled=batched, batching_max_messages=50, block_if_queue_full=True
        )
        for number in range(first, first + count):
            producer.send_async(
                str(number).encode(), None, partition_key=f"g{number % 7}", properties={"n": str(number)}
            )
        producer.flush()
        producer.close()

    await blocking(run)


async def backlog(admin: Admin, topic: str) -> int:
    return int((await admin.stats(topic))["subscriptions"][NAME]["msgBacklog"])


async def is_consumed(admin: Admin, topic: str) -> None:
    async def nothing_is_left() -> bool:
        return await backlog(admin, topic) == 0

    await eventually(nothing_is_left)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "one by one"])
async def test_everything_comes_in_order_and_is_acknowledged(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open, batched: bool
) -> None:
    await send(client, topic, 2000, batched=batched)
    read = await reading()
    await read.brings(2000)
    assert read.numbers == list(range(2000))
    assert [message.group for message in read.messages[:8]] == [f"g{n % 7}" for n in range(8)]
    assert read.messages[3].properties == {"n": "3"}
    assert {message.position.storage_topic for message in read.messages} == {2}
    positions = [message.position for message in read.messages]
    assert positions == sorted(set(positions))
    assert read.source.unacknowledged_entries == 0
    await is_consumed(admin, topic)


async def test_many_messages_wake_the_event_loop_once(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    await send(client, topic, 5000)
    read = await reading()
    await read.brings(5000)
    assert read.turns < 500


async def test_only_what_was_not_acknowledged_comes_to_the_next_owner(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    await send(client, topic, 500)
    first = await reading(acks=False)
    await first.brings(500)
    kept = {3, 49, 50, 51, 250, 499}
    for message in first.messages:
        if int(message.payload) not in kept:
            first.source.ack(message)
    await first.source.close()
    second = await reading()
    await second.brings(len(kept))
    assert set(second.numbers) == kept


async def test_acknowledgements_of_a_part_of_a_batch_reach_the_broker_soon(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    """Without a clean close: as if the process had died."""
    await send(client, topic, 100)
    first = await reading(acks=False)
    await first.brings(100)
    for message in first.messages:
        if int(message.payload) % 10:
            first.source.ack(message)
    await eventually(lambda: not first.source._acks.due)
    await asyncio.sleep(1)  # the native client gathers acknowledgements, and does not tell when they are sent
    first.source._acks.flush = lambda **_: None  # type: ignore[method-assign]
    await first.source.close()
    second = await reading()
    await second.brings(10)
    assert second.numbers == list(range(0, 100, 10))


async def test_a_second_acknowledgement_does_nothing(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open
) -> None:
    await send(client, topic, 10)
    read = await reading()
    await read.brings(10)
    for message in read.messages:
        read.source.ack(message)
    await is_consumed(admin, topic)


async def test_after_an_unload_nothing_comes_twice_and_the_break_is_remembered(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open
) -> None:
    await send(client, topic, 300)
    read = await reading(acks=False)
    await read.brings(300)
    assert read.source.disturbed_at < 0
    before = time.monotonic()
    for message in read.messages[:120]:
        read.source.ack(message)
    await admin.unload(topic)
    await eventually(lambda: read.source.disturbed_at >= before)
    await send(client, topic, 200, first=300)
    await read.brings(500)
    assert read.numbers == list(range(500))
    for message in read.messages[120:]:
        read.source.ack(message)
    await is_consumed(admin, topic)


async def test_a_paused_source_brings_nothing_and_goes_on_where_it_was(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    read = await reading(window=100)
    read.source.pause()
    await send(client, topic, 1000)
    control = Reading(client, topic)  # another subscription shows that the messages are there
    control.source.subscription = "control"
    await control.source.open()
    control.source.resume()
    await control.brings(1000)
    await control.source.close()
    assert read.messages == []
    read.source.resume()
    await read.brings(1000)
    assert read.numbers == list(range(1000))


async def test_a_source_may_be_paused_by_whoever_takes_its_messages(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    read = await reading()
    take = read.source._take

    def take_and_pause(messages: list[Received]) -> None:
        take(messages)
        read.source.pause()

    read.source._take = take_and_pause
    await send(client, topic, 1000)
    while len(read.messages) < 1000:
        came = len(read.messages)
        read.source.resume()
        await read.brings(came + 1)
    assert read.numbers == list(range(1000))


async def test_a_subscription_that_somebody_holds_cannot_be_opened(topic: str, reading: Open) -> None:
    await reading()
    with pytest.raises(Conflict):
        await reading()


async def test_the_sealed_end_is_reached_by_position(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open
) -> None:
    read = await reading()
    await send(client, topic, 120)
    await read.brings(60)
    assert not read.source.drained.is_set()
    end = await seal_partition(admin, topic)
    read.source.sealed(end)
    async with asyncio.timeout(8):  # less than any silence
        await read.source.drained.wait()
    assert read.numbers == list(range(120))
    await is_consumed(admin, topic)


async def test_an_empty_sealed_partition_is_drained_at_once(client: pulsar.Client, topic: str) -> None:
    read = Reading(client, topic)
    read.source.sealed(EMPTY)
    assert read.source.drained.is_set()
    await read.source.close()


async def test_a_cursor_at_the_sealed_end_is_drained_after_a_silence(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SILENCE", 2.0)
    await send(client, topic, 20)
    first = await reading()
    await first.brings(20)
    await is_consumed(admin, topic)
    await first.source.close()
    end = await seal_partition(admin, topic)
    second = await reading()
    second.source.sealed(end)
    await eventually(second.source.drained.is_set, timeout=30)
    assert second.messages == []


async def test_what_is_not_sealed_is_never_drained_and_a_paused_source_neither(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SILENCE", 0.3)
    open_one = await reading()
    await asyncio.sleep(1.5)  # a silence is what is tested
    assert not open_one.source.drained.is_set()
    await send(client, topic, 1)
    await open_one.brings(1)
    await is_consumed(admin, topic)
    await open_one.source.close()
    end = await seal_partition(admin, topic)
    paused = await reading()
    paused.source.pause()
    paused.source.sealed(EntryId(end.ledger, end.entry))
    await asyncio.sleep(1.5)
    assert not paused.source.drained.is_set()


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "one by one"])
async def test_any_message_can_be_fetched_again(
    client: pulsar.Client, topic: str, reading: Open, batched: bool
) -> None:
    await send(client, topic, 400, batched=batched)
    read = await reading(acks=False)
    await read.brings(400)
    for number in (7, 8, 9, 120, 399, 0, 250):
        message = read.messages[number]
        found = await read.source.fetch(message.position)
        assert found is not None
        assert (found.group, found.payload, found.properties) == (
            message.group,
            message.payload,
            message.properties,
        )


async def test_a_closed_source_lets_the_next_owner_in_and_brings_nothing_more(
    client: pulsar.Client, topic: str, reading: Open
) -> None:
    first = await reading()
    await first.source.close()
    assert first.source.lost.is_set()
    assert first.source.reason is None
    second = await reading()
    await send(client, topic, 10)
    await second.brings(10)
    assert first.messages == []


@pytest.mark.full
@pytest.mark.skipif(not restarts.available(), reason="no command that restarts the broker")
async def test_a_restart_of_the_broker_brings_nothing_twice(
    admin: Admin, client: pulsar.Client, topic: str, reading: Open
) -> None:
    await send(client, topic, 1000)
    read = await reading(acks=False)
    await read.brings(1000)
    for message in read.messages[:700]:
        read.source.ack(message)
    await restarts.restart_pulsar()
    await send(client, topic, 500, first=1000)
    await read.brings(1500)
    assert read.numbers == list(range(1500))
    for message in read.messages[700:]:
        read.source.ack(message)
    await is_consumed(admin, topic)
