"""Building a lost state table again, from what nobody has acknowledged in the retry and dead-letter queues.

The blocked groups are those of which something is there. So both queues are read to their present ends before
anything of the main topic is; nothing is acknowledged by that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import pulsar

from millrace.core import parkedcopies
from millrace.core.groupstate import GroupState, GroupStateError, Queue
from millrace.core.positions import Position
from millrace.pulsar.sources import Received, Source

LOGGER = logging.getLogger(__name__)

QUIET = 2.0
"""Seconds without a message after which a connected queue counts as read to its end."""


class Found(NamedTuple):
    """A copy that nobody consumed."""

    queue: Queue
    group: str
    main: Position
    internal: Position


def readable(entries: dict[str, bytes]) -> tuple[dict[str, GroupState], int]:
    """The entries that can be read, and how many cannot."""
    states: dict[str, GroupState] = {}
    for group, data in entries.items():
        try:
            states[group] = GroupState.from_json(data)
        except GroupStateError as error:
            LOGGER.error("the state of group %.64s cannot be read and is built again: %s", group, error)
    return states, len(entries) - len(states)


async def scan(
    client: pulsar.Client, subscription: str, topics: Iterable[tuple[Queue, str, int, int]]
) -> list[Found]:
    """Every copy in these partitions (queue, topic, storage topic, partition) that nobody acknowledged."""
    # All at once: an empty partition costs a moment of silence.
    found = await asyncio.gather(*(_scan_partition(client, subscription, each) for each in topics))
    return [copy for copies in found for copy in copies]


async def _scan_partition(
    client: pulsar.Client, subscription: str, where: tuple[Queue, str, int, int]
) -> list[Found]:
    queue, topic, storage_topic, partition = where
    found: list[Found] = []
    async for message in _unacknowledged(client, subscription, topic, storage_topic, partition):
        copy = parkedcopies.parse(message.properties)
        found.append(Found(queue, message.group, copy.main, message.position))
    return found


async def _unacknowledged(
    client: pulsar.Client, subscription: str, topic: str, storage_topic: int, partition: int
) -> AsyncIterator[Received]:
    came: asyncio.Queue[Received] = asyncio.Queue()

    def take(messages: list[Received]) -> None:
        for message in messages:
            came.put_nowait(message)

    source = Source(client, topic, subscription, take, storage_topic=storage_topic, partition=partition)
    await source.open()
    try:
        source.resume()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET:
            try:
                async with asyncio.timeout(QUIET / 4):
                    yield await came.get()
            except TimeoutError:
                if source.connected:
                    continue
            quiet_since = time.monotonic()
    finally:
        await source.close()
