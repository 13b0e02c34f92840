"""The consumer on a real broker: order across switches, where it begins, what it acknowledges and refuses.

Messages are `GROUP NUMBER`, numbered from 0 within each group.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from millrace.client import (
    ClientError,
    Connection,
    Consumer,
    ConsumerClosed,
    EndOfPartition,
    InvalidMessage,
    Message,
    NoSuchPartition,
    Position,
    Stream,
    TopicNotFound,
)
from millrace.core.promise import PromiseChecker
from millrace.core.routing import partition_of
from millrace.pulsar.errors import Conflict, Misconfigured
from tests.support.waiting import eventually

Create = Callable[..., Awaitable[Any]]
GROUPS = [f"group-{index}" for index in range(20)]
DEADLINE = 60.0


async def take(consumer: Consumer, count: int, *, ack: bool = False) -> list[Message]:
    messages = []
    async with asyncio.timeout(DEADLINE):
        for _ in range(count):
            messages.append(await consumer.receive())
            if ack:
                await consumer.ack(messages[-1])
    return messages


async def comes_to_nothing(consumer: Consumer, seconds: float = 1.0) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.receive(), seconds)


def said(messages: Iterable[Message]) -> Counter[str]:
    return Counter(message.payload.decode() for message in messages)


def expected(groups: Iterable[str], numbers: Iterable[int]) -> Counter[str]:
    return Counter(f"{group} {number}" for number in list(numbers) for group in groups)


def assert_in_order(messages: Iterable[Message]) -> None:
    checker = PromiseChecker()
    for message in messages:
        group, number = message.payload.decode().split()
        assert message.group_id == group
        checker.deliver(group, int(number))
    assert not checker.violations
    assert not checker.repeats


# Order


@pytest.mark.parametrize("subscription", [None, "reader"])
async def test_everything_is_read_in_order_over_storage_topics_that_grow_and_shrink(
    create: Create, connection: Connection, subscription: str | None
) -> None:
    composite = await create(2, 6, 1)
    await composite.send(GROUPS, range(20))
    await composite.switch()
    await composite.send(GROUPS, range(20, 40))
    await composite.switch()
    await composite.send(GROUPS, range(40, 60))
    async with await Consumer.open(connection, composite.name, subscription=subscription) as consumer:
        messages = await take(consumer, 60 * len(GROUPS), ack=subscription is not None)
        await comes_to_nothing(consumer)
    assert said(messages) == expected(GROUPS, range(60))
    assert_in_order(messages)
    assert {message.position.storage_topic for message in messages} == {0, 1, 2}


@pytest.mark.parametrize("subscription", [None, "reader"])
async def test_a_consumer_follows_switches_that_happen_while_it_reads(
    create: Create, connection: Connection, subscription: str | None
) -> None:
    composite = await create(2, 4, 3)
    async with await Consumer.open(connection, composite.name, subscription=subscription) as consumer:
        reading = asyncio.ensure_future(take(consumer, 150 * len(GROUPS), ack=subscription is not None))
        for index in range(3):
            await composite.send(GROUPS, range(50 * index, 50 * index + 50))
            if index < 2:
                await composite.switch()
        messages = await reading
    assert said(messages) == expected(GROUPS, range(150))
    assert_in_order(messages)


async def test_partitions_and_storage_topics_that_stayed_empty_are_passed(
    create: Create, connection: Connection
) -> None:
    composite = await create(4, 2, 4)
    await composite.send(["lonely"], range(3))
    await composite.switch()
    await composite.switch()
    await composite.send(GROUPS, range(2))
    async with await Consumer.open(connection, composite.name) as consumer:
        messages = await take(consumer, 3 + 2 * len(GROUPS))
    assert_in_order(messages)


@pytest.mark.parametrize("subscription", [None, "reader"])
async def test_an_empty_partition_that_the_broker_can_no_longer_open_is_passed(
    create: Create, connection: Connection, subscription: str | None
) -> None:
    composite = await create(4, 1)
    await composite.send(["lonely"], range(3))
    async with await Consumer.open(connection, composite.name, subscription=subscription) as watching:
        await composite.switch()
        await composite.unload(0)
        await composite.send(["lonely"], range(3, 5))
        messages = await take(watching, 5, ack=subscription is not None)
    assert_in_order(messages)
    async with await Consumer.open(connection, composite.name) as late:
        assert_in_order(await take(late, 5))


async def test_a_silent_partition_that_is_not_sealed_is_not_taken_for_drained(
    create: Create, connection: Connection
) -> None:
    composite = await create(1, 1)
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        await comes_to_nothing(consumer)
        await composite.send(["a"], range(1))
        await take(consumer, 1, ack=True)
        await comes_to_nothing(consumer)
        await composite.send(["a"], range(1, 2))
        await composite.switch()
        await composite.send(["a"], range(2, 3))
        messages = await take(consumer, 2, ack=True)
    assert [message.payload for message in messages] == [b"a 1", b"a 2"]


async def test_an_unload_in_the_middle_neither_loses_nor_repeats(
    create: Create, connection: Connection
) -> None:
    composite = await create(2)
    await composite.send(GROUPS, range(100))
    async with (
        await Consumer.open(connection, composite.name) as reader,
        await Consumer.open(connection, composite.name, subscription="reader") as subscriber,
    ):
        read = await take(reader, 500)
        received = await take(subscriber, 500)
        await composite.unload()
        await composite.send(GROUPS, range(100, 120))
        read += await take(reader, 120 * len(GROUPS) - 500)
        received += await take(subscriber, 120 * len(GROUPS) - 500)
        for message in received:
            await subscriber.ack(message)
    for messages in (read, received):
        assert said(messages) == expected(GROUPS, range(120))
        assert_in_order(messages)

    async def everything_is_acknowledged() -> bool:
        return bool(await composite.backlog(0, "reader") == 0)

    await eventually(everything_is_acknowledged)


# Taking messages


async def test_a_receive_that_is_cancelled_loses_nothing(create: Create, connection: Connection) -> None:
    composite = await create(3)
    async with await Consumer.open(connection, composite.name) as consumer:
        sending = asyncio.ensure_future(composite.send(GROUPS, range(50)))
        messages: list[Message] = []
        cancelled = 0
        async with asyncio.timeout(DEADLINE):
            while len(messages) < 50 * len(GROUPS):
                try:
                    messages.append(await asyncio.wait_for(consumer.receive(), 0.0005))
                except TimeoutError:
                    cancelled += 1
        await sending
    assert cancelled, "the test has proved nothing"
    assert said(messages) == expected(GROUPS, range(50))


async def test_a_message_says_where_it_is_and_who_sent_it(create: Create, connection: Connection) -> None:
    composite = await create(4)
    [position] = await composite.send(["someone"], [7])
    async with await Consumer.open(connection, composite.name) as consumer:
        [message] = await take(consumer, 1)
    assert message.position.entry_id == position.entry_id
    assert message.position.storage_topic == 0
    assert message.partition == partition_of("someone", composite.descriptor.produce_topic.layout)
    assert (message.group_id, message.payload, message.properties) == ("someone", b"someone 7", {})
    assert message.message_id.endswith(":0")


async def test_closing_ends_an_iteration(create: Create, connection: Connection) -> None:
    composite = await create(1)
    await composite.send(["a"], range(3))
    consumer = await Consumer.open(connection, composite.name)
    seen: list[Message] = []

    async def iterate() -> None:
        async for message in consumer.tail():
            seen.append(message)  # noqa: PERF401 - seen while the iteration goes on

    iterating = asyncio.ensure_future(iterate())
    await eventually(lambda: len(seen) == 3)
    await consumer.close()
    await asyncio.wait_for(iterating, DEADLINE)
    with pytest.raises(ConsumerClosed):
        await consumer.receive()
    await consumer.close()


# Where it begins


async def test_saved_positions_continue_exactly_also_across_a_switch(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 4)
    await composite.send(GROUPS, range(20))
    await composite.switch()
    await composite.send(GROUPS, range(20, 40))
    total, step = 40 * len(GROUPS), 130
    messages: list[Message] = []
    after: dict[Stream, Position] = {}
    while len(messages) < total:
        async with await Consumer.open(connection, composite.name, after=after) as consumer:
            messages += await take(consumer, min(step, total - len(messages)))
            after = consumer.positions
    assert said(messages) == expected(GROUPS, range(40))
    assert_in_order(messages)
    async with await Consumer.open(connection, composite.name, after=after) as consumer:
        await comes_to_nothing(consumer)


async def test_a_read_pointer_leaves_out_the_storage_topics_before_it(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 4)
    await composite.send(GROUPS, range(2))
    await composite.switch()
    await composite.send(GROUPS, range(2, 4))
    async with await Consumer.open(connection, composite.name, read_pointer=1) as consumer:
        messages = await take(consumer, 2 * len(GROUPS))
    assert said(messages) == expected(GROUPS, range(2, 4))


# Subscriptions


async def test_a_subscription_goes_on_after_what_was_acknowledged(
    create: Create, connection: Connection
) -> None:
    composite = await create(2)
    await composite.send(GROUPS, range(10))
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        handled = await take(consumer, 80, ack=True)
        await take(consumer, 20)  # not acknowledged: delivered again
    # Where the broker has no batch-index acknowledgements, an entry comes again as a whole.
    rest: list[Message] = []
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        async with asyncio.timeout(DEADLINE):
            while said([*handled, *rest]).keys() != expected(GROUPS, range(10)).keys():
                rest += await take(consumer, 1, ack=True)
    done = said(handled)
    unhandled = {(m.partition, m.position.entry_id) for m in rest if m.payload.decode() not in done}
    for message in rest:
        assert (message.partition, message.position.entry_id) in unhandled, f"{message} came again"
    for group in GROUPS:
        numbers = [int(m.payload.split()[1]) for m in rest if m.group_id == group]
        assert numbers == sorted(numbers)


async def test_the_next_storage_topic_waits_for_the_acknowledgements(
    create: Create, connection: Connection
) -> None:
    composite = await create(1, 1)
    await composite.send(["a"], range(5))
    await composite.switch()
    await composite.send(["a"], range(5, 6))
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        messages = await take(consumer, 5)
        for message in messages[:-1]:
            await consumer.ack(message)
        await comes_to_nothing(consumer)
        await consumer.ack(messages[-1])
        [following] = await take(consumer, 1)
    assert following.payload == b"a 5"


async def test_a_subscription_that_had_everything_before_the_switch_goes_on_behind_it(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 1)
    await composite.send(GROUPS, range(3))
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        await take(consumer, 3 * len(GROUPS), ack=True)
    await composite.switch()
    await composite.send(GROUPS, range(3, 4))
    async with await Consumer.open(connection, composite.name, subscription="reader") as consumer:
        messages = await take(consumer, len(GROUPS), ack=True)
    assert said(messages) == expected(GROUPS, range(3, 4))


async def test_a_subscription_has_one_consumer_at_a_time(create: Create, connection: Connection) -> None:
    composite = await create(1)
    async with await Consumer.open(connection, composite.name, subscription="reader"):
        with pytest.raises(Conflict, match="another client holds it"):
            await Consumer.open(connection, composite.name, subscription="reader")
    async with await Consumer.open(connection, composite.name, subscription="reader"):
        pass


# By its place


async def test_one_message_can_be_read_by_its_place(create: Create, connection: Connection) -> None:
    composite = await create(1, 1)
    positions = await composite.send(["a"], range(5))
    async with await Consumer.open(connection, composite.name) as consumer:
        assert (await consumer.consume(0, 0)).payload == b"a 0"
        assert (await consumer.consume(0, 0, positions[3])).payload == b"a 3"
        waiting = asyncio.ensure_future(consumer.consume(1, 0))
        await composite.switch()
        await composite.send(["a"], range(5, 6))
        assert (await asyncio.wait_for(waiting, DEADLINE)).payload == b"a 5"


async def test_behind_a_sealed_end_there_is_nothing_to_read(create: Create, connection: Connection) -> None:
    composite = await create(2, 1)
    [position] = await composite.send(["a"], [0])
    layout = composite.descriptor.produce_topic.layout
    mine = partition_of("a", layout)
    async with await Consumer.open(connection, composite.name) as consumer:
        behind = Position(0, position.ledger, position.entry + 1)
        waiting = asyncio.ensure_future(consumer.consume(0, mine, behind))
        await composite.switch()
        with pytest.raises(EndOfPartition):
            await asyncio.wait_for(waiting, DEADLINE)
        with pytest.raises(EndOfPartition):
            await consumer.consume(0, 1 - mine)


# What is refused


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"read_pointer": 2}, NoSuchPartition),
        ({"read_pointer": -1}, NoSuchPartition),
        ({"after": {(0, 2): Position(0, 1, 1)}}, NoSuchPartition),
        ({"after": {(2, 0): Position(2, 1, 1)}}, NoSuchPartition),
        ({"after": {(0, 0): Position(1, 1, 1)}}, NoSuchPartition),
        ({"subscription": ""}, Misconfigured),
        ({"subscription": "a/b"}, Misconfigured),
        ({"subscription": "a", "read_pointer": 1}, Misconfigured),
        ({"subscription": "a", "after": {}}, Misconfigured),
    ],
    ids=str,
)
async def test_a_place_to_begin_that_cannot_be_is_refused(
    create: Create, connection: Connection, wish: dict[str, Any], error: type[Exception]
) -> None:
    composite = await create(2, 4)
    with pytest.raises(error):
        await Consumer.open(connection, composite.name, **wish)


async def test_a_position_behind_the_sealed_end_is_refused(create: Create, connection: Connection) -> None:
    composite = await create(1, 1)
    [position] = await composite.send(["a"], [0])
    await composite.switch()
    behind = Position(0, position.ledger, position.entry + 1)
    with pytest.raises(EndOfPartition, match="nothing can have been read"):
        await Consumer.open(connection, composite.name, after={Stream(0, 0): behind})


async def test_only_what_a_subscription_delivered_can_be_acknowledged_and_only_once(
    create: Create, connection: Connection
) -> None:
    composite = await create(1)
    await composite.send(["a"], range(1))
    async with await Consumer.open(connection, composite.name) as reader:
        [message] = await take(reader, 1)
        with pytest.raises(Misconfigured, match="without a subscription"):
            await reader.ack(message)
    consumer = await Consumer.open(connection, composite.name, subscription="reader")
    [message] = await take(consumer, 1, ack=True)
    with pytest.raises(InvalidMessage, match="acknowledged before"):
        await consumer.ack(message)
    await consumer.close()
    with pytest.raises(ConsumerClosed):
        await consumer.ack(message)


async def test_a_topic_that_does_not_exist_is_said_not_to(connection: Connection) -> None:
    with pytest.raises(TopicNotFound) as raised:
        await Consumer.open(connection, "test/there-is-none")
    assert isinstance(raised.value, ClientError)
