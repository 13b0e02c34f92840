"""The producer on a real broker: positions, order over switches, and nothing lost, whatever breaks.

Messages are `GROUP NUMBER`, numbered from 0 within each group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millrace.client import Connection, Consumer, Message, Position, Producer
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import PulsarError
from tests.integration.client.load import assert_complete_and_in_order, child, numbers, writers
from tests.support.waiting import eventually

Create = Callable[..., Awaitable[Any]]
GROUPS = [f"group-{index}" for index in range(20)]
GROWS_SHRINKS_AND_GROWS = (2, 6, 3, 12)


def recovered(caplog: pytest.LogCaptureFixture) -> int:
    """Sends whose fate was read from a sealed partition."""
    found = (re.search(r"of (\d+) unanswered sends", record.getMessage()) for record in caplog.records)
    return sum(int(match[1]) for match in found if match)


def in_their_order(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


# Positions and properties


async def test_a_send_says_where_exactly_the_message_is(create: Create, connection: Connection) -> None:
    composite = await create(3, 2)
    placed: dict[bytes, Position] = {}
    async with await Producer.open(connection, composite.name) as producer:
        for number, switched in enumerate((False, True)):
            if switched:
                await composite.switch()
            alone = f"alone {number}".encode()
            placed[alone] = await producer.send("alone", alone)
            together = [f"{group} {number}".encode() for group in GROUPS]
            placed |= zip(
                together,
                await asyncio.gather(*map(producer.send, GROUPS, together)),
                strict=True,
            )
    messages = await composite.everything()
    assert {message.payload: message.position for message in messages} == placed
    assert {position.storage_topic for position in placed.values()} == {0, 1}
    async with await Consumer.open(connection, composite.name) as consumer:
        for message in messages[::7]:
            place = (message.position.storage_topic, message.partition, message.position)
            assert (await asyncio.wait_for(consumer.consume(*place), 15)).payload == message.payload


async def test_properties_come_back_as_they_were_when_the_message_was_sent(
    create: Create, connection: Connection
) -> None:
    composite = await create(1)
    properties = {"kind": "created", "größe": "½"}
    async with await Producer.open(connection, composite.name) as producer:
        first = producer.send_nowait("a", b"a 0", properties)
        properties["kind"] = "changed"
        second = producer.send_nowait("a", b"a 1", properties)
        third = producer.send_nowait("a", b"a 2")
        await asyncio.gather(first, second, third)
    assert [message.properties for message in await composite.everything()] == [
        {"kind": "created", "größe": "½"},
        {"kind": "changed", "größe": "½"},
        {},
    ]


async def test_what_the_broker_has_stored_and_not_answered_gets_its_true_position(
    create: Create, connection: Connection
) -> None:
    """After an unload the client repeats what it had no answer for: it hears that it is there, not where."""
    composite = await create(2)
    async with writers(connection, composite.name, count=1, groups_each=300) as [writer]:
        for _ in range(8):
            await writer.proceeds()
            await composite.unload()
        await writer.proceeds()
    stored = {message.payload: message.position for message in await composite.everything()}
    assert {f"{group} {number}".encode(): at for (group, number), at in writer.positions().items()} == stored
    assert len(stored) == len(writer.sent)


# Order


async def test_the_order_of_the_calls_is_the_order_stored_whoever_makes_them(
    create: Create, connection: Connection
) -> None:
    composite = await create(2)
    calls: dict[int, list[bytes]] = {0: [], 1: []}
    async with (
        await Producer.open(connection, composite.name, max_pending_messages=7) as narrow,
        await Producer.open(connection, composite.name) as wide,
    ):

        async def call(index: int, producer: Producer, task: int) -> None:
            for number in range(40):
                payload = f"{index} {task} {number}".encode()
                calls[index].append(payload)
                await producer.send("shared", payload)

        await asyncio.gather(*(call(0, narrow, task) for task in range(20)))
        await asyncio.gather(
            *(
                call(index, producer, 20 + task)
                for task in range(20)
                for index, producer in [(0, narrow), (1, wide)]
            )
        )
    stored = in_their_order(await composite.everything())
    for index, called in calls.items():
        assert [payload for payload in stored if payload.startswith(b"%d " % index)] == called


@pytest.mark.parametrize("disturbed", [False, True], ids=["undisturbed", "unloaded meanwhile"])
async def test_nothing_is_lost_doubled_or_out_of_order_while_the_topic_grows_shrinks_and_grows(
    create: Create, connection: Connection, caplog: pytest.LogCaptureFixture, disturbed: bool
) -> None:
    caplog.set_level(logging.INFO, "millrace.client.producer")
    composite = await create(*GROWS_SHRINKS_AND_GROWS)

    async with writers(connection, composite.name, count=3, groups_each=100) as load:
        for pointer in range(len(GROWS_SHRINKS_AND_GROWS)):
            if pointer:
                disturbance = [composite.unload(pointer - 1)] if disturbed else []
                await asyncio.gather(composite.switch(), *disturbance)
            for writer in load:
                await writer.reaches(pointer)
    positions = {key: position for writer in load for key, position in writer.positions().items()}
    messages = await composite.everything()
    assert_complete_and_in_order(messages, positions)
    for message in messages:
        group, number = message.payload.decode().split()
        assert positions[group, int(number)] == message.position
    assert recovered(caplog), "no send was in flight when a partition was closed: nothing is proved"


async def test_a_producer_that_slept_through_a_switch_goes_on_in_order(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 5, 3)
    async with child(composite.name, GROUPS) as sleeper:
        async with writers(connection, composite.name, count=1, groups_each=20) as [awake]:
            for pointer in (1, 2):
                await sleeper.proceeds()
                sleeper.process.send_signal(signal.SIGSTOP)
                try:
                    await composite.switch()
                    await awake.reaches(pointer)
                finally:
                    sleeper.process.send_signal(signal.SIGCONT)
            await sleeper.proceeds()
        await sleeper.finish()
    messages = await composite.everything()
    assert_complete_and_in_order(messages, [*awake.sent, *sleeper.acknowledged])
    from_the_sleeper = {m.position.storage_topic for m in messages if m.group_id in GROUPS}
    assert from_the_sleeper >= {0, 2}


async def test_a_switch_may_pass_a_topic_that_cannot_be_written_to(
    create: Create, connection: Connection
) -> None:
    composite = await create(2, 3, 4, adopted=1)
    async with writers(connection, composite.name, count=1, groups_each=20) as [writer]:
        await writer.reaches(0)
        await composite.announce(2)
        await composite.step()
        opening = asyncio.ensure_future(Producer.open(connection, composite.name))
        assert composite.descriptor.produce_pointer == 1
        await composite.step()
        await writer.reaches(2)
        async with await asyncio.wait_for(opening, 15) as late:
            assert (await late.send("late", b"late 0")).storage_topic == 2
    assert_complete_and_in_order(await composite.everything(), [*writer.sent, ("late", 0)])


# What is acknowledged stays


async def test_what_was_acknowledged_is_there_after_its_producer_was_killed(create: Create) -> None:
    composite = await create(3)
    async with child(composite.name, GROUPS) as producer:
        await producer.proceeds(500)
        await producer.kill()
    stored = numbers(await composite.everything())
    for group, number in producer.acknowledged:
        assert number in stored[group]
    for group, found in stored.items():
        assert found == list(range(len(found))), f"{group} is stored as {found}"


async def test_a_producer_that_is_killed_during_a_switch_leaves_no_disorder(create: Create) -> None:
    composite = await create(4, 2)
    async with child(composite.name, GROUPS) as producer:
        await producer.proceeds(500)
        await composite.announce(1)
        switching = asyncio.ensure_future(composite.step())
        await producer.proceeds(1)
        await producer.kill()
        await switching
    stored = numbers(await composite.everything())
    for group, number in producer.acknowledged:
        assert number in stored[group]
    for group, found in stored.items():
        assert found == list(range(len(found))), f"{group} is stored as {found}"


async def test_a_reconnect_before_the_first_answer_loses_nothing(
    create: Create, connection: Connection
) -> None:
    """Left to itself the native client would number anew, and be told that it repeats itself."""
    composite = await create(2)

    async def all_are_connected() -> bool:
        return bool(await composite.publishers() == 2)

    futures: dict[bytes, asyncio.Future[Position]] = {}
    async with await Producer.open(connection, composite.name, batch_delay=1.5) as producer:
        for rounds in (range(1), range(1, 150), range(150, 300)):
            for text in (f"{group} {number}" for number in rounds for group in GROUPS):
                futures[text.encode()] = producer.send_nowait(text.split()[0], text.encode())
            await eventually(all_are_connected)
            if 0 in rounds:
                await composite.unload()
        async with asyncio.timeout(60):
            await asyncio.gather(*futures.values())
    stored = {message.payload: message.position for message in await composite.everything()}
    assert stored == {payload: future.result() for payload, future in futures.items()}


@pytest.mark.full
@pytest.mark.skipif("PULSAR_RESTART_COMMAND" not in os.environ, reason="no command that restarts the broker")
@pytest.mark.parametrize("when", ["before a switch", "during a switch"])
async def test_a_broker_restart_loses_doubles_and_reorders_nothing(
    create: Create, connection: Connection, when: str
) -> None:
    composite = await create(2, 6)
    restart = shlex.split(os.environ["PULSAR_RESTART_COMMAND"])
    async with writers(connection, composite.name, count=3, groups_each=30) as load:
        for writer in load:
            await writer.reaches(0)
        await composite.announce(1)
        restarting = asyncio.ensure_future(blocking(subprocess.run, restart, check=True))
        if when == "before a switch":
            await restarting

        async def is_switched() -> bool:
            with contextlib.suppress(PulsarError):
                await composite.step()
            return bool(composite.descriptor.produce_pointer == 1)

        await eventually(is_switched, timeout=120)
        await restarting
        for writer in load:
            await writer.reaches(1)
    positions = {key: position for writer in load for key, position in writer.positions().items()}
    messages = await composite.everything()
    assert_complete_and_in_order(messages, positions)
    assert {m.payload: m.position for m in messages} == {
        f"{group} {number}".encode(): position for (group, number), position in positions.items()
    }
