"""The producer on a real broker: back-pressure, batches, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.client import (
    Connection,
    Consumer,
    InvalidGroupId,
    InvalidMessage,
    Message,
    Position,
    Producer,
    ProducerClosed,
    QueueFull,
    TopicNotFound,
    TopicNotWritable,
)
from millrace.client.errors import PayloadTooLarge
from millrace.core.groups import MAX_GROUP_ID_BYTES
from tests.support.waiting import eventually

Create = Callable[..., Awaitable[Any]]
DOCUMENT = Path(__file__).parents[3] / "docs" / "client.md"
MIB = 1024 * 1024


async def settle() -> None:
    """Let every task that is ready run as far as it can get."""
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(composite: Any, producer: Producer) -> None:
    """Close the produce topic: from now on nothing is acknowledged until the pointer moves."""
    await producer.send("a", b"before")
    await composite.announce(1)
    await composite.close_partitions()


# Back-pressure


@pytest.mark.parametrize(
    ("limits", "size", "fits"),
    [({"max_pending_messages": 3}, 10, 3), ({"max_pending_bytes": 5000}, 2000, 2)],
    ids=["messages", "bytes"],
)
async def test_no_more_is_under_way_than_allowed_and_the_rest_waits_in_its_order(
    create: Create, connection: Connection, limits: dict[str, int], size: int, fits: int
) -> None:
    composite = await create(1, 2)
    async with await Producer.open(connection, composite.name, **limits) as producer:
        await hold(composite, producer)
        payloads = [b"%d" % number + bytes(size) for number in range(10)]
        sends = [asyncio.ensure_future(producer.send("a", payload)) for payload in payloads]
        await settle()
        assert producer.pending == fits
        with pytest.raises(QueueFull, match="allow more with max_pending"):
            producer.send_nowait("a", b"one too many")
        with pytest.raises(QueueFull):  # not even a small one passes those who wait
            producer.send_nowait("b", b"")
        await composite.step()
        positions = await asyncio.wait_for(asyncio.gather(*sends), 30)
        assert producer.pending == 0
        assert producer.send_nowait("a", b"after")
    assert positions == sorted(positions)
    stored = [message.payload for message in await composite.everything()]
    assert stored == [b"before", *payloads, b"after"]


async def test_a_message_larger_than_all_the_room_is_sent_alone(
    create: Create, connection: Connection
) -> None:
    composite = await create(1)
    async with await Producer.open(connection, composite.name, max_pending_bytes=1000) as producer:
        small = producer.send_nowait("a", b"small")
        large = await asyncio.wait_for(producer.send("a", bytes(5000)), 15)
        assert (await small) < large


async def test_a_wait_that_is_cancelled_sends_nothing_and_holds_nobody_up(
    create: Create, connection: Connection
) -> None:
    composite = await create(1, 1)
    async with await Producer.open(connection, composite.name, max_pending_messages=1) as producer:
        await hold(composite, producer)
        first = producer.send_nowait("a", b"first")
        waiting = [asyncio.ensure_future(producer.submit("a", b"%d" % number)) for number in range(4)]
        await settle()
        flushing = asyncio.ensure_future(producer.flush())
        await settle()
        waiting[0].cancel()
        waiting[2].cancel()
        # This one is called in at the very moment in which it is cancelled.
        first.add_done_callback(lambda _: waiting[1].cancel())
        await composite.step()
        await asyncio.wait_for(flushing, 30)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [
            True,
            True,
            True,
            False,
        ]
    stored = [message.payload for message in await composite.everything()]
    assert stored == [b"before", b"first", b"3"]


# Batches


async def test_messages_that_are_sent_together_share_entries(create: Create, connection: Connection) -> None:
    composite = await create(1)
    async with await Producer.open(connection, composite.name, batch_delay=0.05) as producer:
        await producer.send("a", b"")
        futures = [producer.send_nowait(f"group-{number % 10}", b"x") for number in range(500)]
        positions = await asyncio.gather(*futures)
    shared = Counter(position.entry_id for position in positions)
    assert len(shared) < 50
    for entry, count in shared.items():
        assert sorted(p.batch for p in positions if p.entry_id == entry) == list(range(count))
    assert await composite.entries() == len(shared) + 1


async def test_a_batch_is_no_larger_than_what_the_broker_takes_whatever_its_messages_are_made_of(
    create: Create, connection: Connection
) -> None:
    composite = await create(1)
    async with await Producer.open(connection, composite.name, batch_delay=1.0) as producer:
        await producer.send("a", b"")
        bulky = {"property": "x" * 8000}
        futures = [producer.send_nowait(f"group-{number}", b"", bulky) for number in range(1000)]
        positions = await asyncio.gather(*futures)
    assert len({position.entry_id for position in positions}) == 2


# What is refused


@pytest.mark.parametrize(
    ("group", "payload", "properties", "error", "says"),
    [
        ("", b"", None, InvalidGroupId, "empty"),
        ("g" * (MAX_GROUP_ID_BYTES + 1), b"", None, InvalidGroupId, "more than 1024"),
        ("ü" * (MAX_GROUP_ID_BYTES // 2 + 1), b"", None, InvalidGroupId, "1026 bytes"),
        ("\ud800", b"", None, InvalidGroupId, "surrogate"),
        (7, b"", None, InvalidGroupId, "not int"),
        (None, b"", None, InvalidGroupId, "not NoneType"),
        (b"a", b"", None, InvalidGroupId, "not bytes"),
        ("a", "text", None, InvalidMessage, "not bytes; encode it first"),
        ("a", None, None, InvalidMessage, "NoneType"),
        ("a", bytearray(b"x"), None, InvalidMessage, "bytearray"),
        ("a", bytes(5 * MIB), None, PayloadTooLarge, "the broker's limit of 5242880"),
        ("a", b"", {"p": "x" * 5 * MIB}, PayloadTooLarge, "limit"),
        ("a", b"", {"mr": "x"}, InvalidMessage, "reserved"),
        ("a", b"", {"n": 1}, InvalidMessage, "strings"),
        ("a", b"", {"n": "\udc00"}, InvalidMessage, "UTF-8"),
        ("a", b"", [("n", "1")], InvalidMessage, "mapping"),
    ],
    ids=lambda value: None if value is None else str(value)[:24],
)
async def test_bad_input_is_refused_by_name_and_nothing_is_stored(  # noqa: PLR0917 - a table
    create: Create,
    connection: Connection,
    group: Any,
    payload: Any,
    properties: Any,
    error: type[Exception],
    says: str,
) -> None:
    composite = await create(1)
    async with await Producer.open(connection, composite.name) as producer:
        await producer.send("a", b"good")
        before = await composite.entries()
        with pytest.raises(error, match=says):
            await producer.send(group, payload, properties)
        with pytest.raises(error, match=says):
            producer.send_nowait(group, payload, properties)
        assert producer.pending == 0
    assert await composite.entries() == before == 1


async def test_what_only_the_broker_finds_too_large_is_refused_and_the_next_goes_on(
    create: Create, connection: Connection
) -> None:
    composite = await create(1)
    async with await Producer.open(connection, composite.name, max_message_size=50 * MIB) as producer:
        futures = [producer.send_nowait("a", payload) for payload in (b"0", bytes(6 * MIB), b"1")]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Position, PayloadTooLarge, Position]
        assert producer.pending == 0
    assert [message.payload for message in await composite.everything()] == [b"0", b"1"]


async def test_a_topic_that_does_not_exist_is_said_not_to(connection: Connection) -> None:
    with pytest.raises(TopicNotFound, match="check the name"):
        await Producer.open(connection, "test/there-is-none")


async def test_a_topic_that_somebody_else_routed_is_not_written_to(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 2, adopted=0)
    with pytest.raises(TopicNotWritable, match="append a storage topic"):
        await Producer.open(connection, composite.name)
    assert await composite.entries() == 0
    assert await composite.publishers() == 0
    await composite.switch()
    async with await Producer.open(connection, composite.name) as producer:
        assert (await producer.send("a", b"")).storage_topic == 1


# The end


async def test_flush_waits_for_everything_that_was_sent_before(
    create: Create, connection: Connection
) -> None:
    composite = await create(3)
    async with await Producer.open(connection, composite.name, max_pending_messages=20) as producer:
        sends = [asyncio.ensure_future(producer.submit(f"g{number}", b"x")) for number in range(200)]
        await settle()
        await producer.flush()
        assert all(send.done() and send.result().done() for send in sends)


async def test_close_sends_what_is_under_way_and_refuses_the_rest(
    create: Create, connection: Connection
) -> None:
    composite = await create(3)
    producer = await Producer.open(connection, composite.name)
    futures = [producer.send_nowait(f"g{number}", b"x") for number in range(100)]
    closing = asyncio.ensure_future(producer.close())
    await settle()
    with pytest.raises(ProducerClosed):
        producer.send_nowait("late", b"x")
    await closing
    assert len({future.result() for future in futures}) == 100
    with pytest.raises(ProducerClosed):
        await producer.send("late", b"x")
    await producer.close()
    assert await composite.publishers() == 0
    assert len(await composite.everything()) == 100


async def test_a_close_that_runs_out_of_time_fails_what_is_not_stored_and_disconnects(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 1)
    producer = await Producer.open(connection, composite.name, max_pending_messages=3)
    await hold(composite, producer)
    held = [producer.send_nowait("a", b"held") for _ in range(3)]
    waiting = asyncio.ensure_future(producer.send("a", b"waiting"))
    flushing = asyncio.ensure_future(producer.flush())
    await settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.5)
    outcomes = await asyncio.gather(*held, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ProducerClosed] * 4
    await asyncio.wait_for(flushing, 5)
    await eventually(lambda: nobody_writes(composite))
    await composite.step()
    assert [message.payload for message in await composite.everything()] == [b"before"]


async def test_a_close_that_interrupts_the_connecting_leaves_nothing_connected(
    create: Create, connection: Connection
) -> None:
    composite = await create(8)
    producer = await Producer.open(connection, composite.name)
    futures = [producer.send_nowait(f"g{number}", b"x") for number in range(100)]
    closing = asyncio.ensure_future(producer.close())
    await settle()
    closing.cancel()
    await asyncio.wait((closing,))
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ProducerClosed}
    # A second one on the same connection is served after the first one's attempts to connect.
    async with await Producer.open(connection, composite.name) as other:
        await asyncio.gather(*(other.send(f"g{number}", b"x") for number in range(100)))
    await eventually(lambda: nobody_writes(composite))


async def nobody_writes(composite: Any) -> bool:
    return bool(await composite.publishers() == 0)


# What the document shows


async def test_the_examples_of_the_document_run_as_written(create: Create, connection: Connection) -> None:
    composite = await create(2)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 6, "an example came or went: say here what it does"
    imports, connecting, producing, *consuming = (
        block.replace("shop/orders", composite.name) for block in blocks
    )
    names: dict[str, Any] = {}
    exec(imports, names)
    await run(connecting, names)
    names["connection"] = connection
    await asyncio.wait_for(run(producing, names), 30)
    seen: list[Message | Any] = []

    async def handle(message: Message) -> None:
        seen.append(message.group_id)

    names |= {
        "print": lambda group, *_: seen.append(group),
        "handle": handle,
        "store": lambda group, _: seen.append(group),
        "result_of": lambda message: message.group_id,
        "saved": {},
    }
    for block in consuming:
        running = asyncio.ensure_future(run(block, names))
        await eventually(lambda: len(seen) == 3 or running.done())  # noqa: B023 - used at once
        running.cancel()
        await asyncio.wait((running,))
        assert running.cancelled(), running.exception()
        assert seen == ["customer-17"] * 3
        seen.clear()
    async with await Consumer.open(connection, composite.name) as consumer:
        assert (await consumer.receive()).properties == {"kind": "created"}


async def run(block: str, names: dict[str, Any]) -> None:
    body = "".join(f"    {line}\n" for line in block.splitlines())
    exec(f"async def example():\n{body}", names)
    await names["example"]()
