"""What a partition holds of a producer's sends, where the broker's answers do not tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass

import pulsar

from millrace.client.errors import ProducerFailed
from millrace.client.partitions import SILENCE, Message, PartitionReader, Start, pull_to
from millrace.client.streams import open_whole
from millrace.core.positions import EntryId, Position
from millrace.core.sending import Locate, Recover, S
from millrace.pulsar.errors import PulsarError

LOGGER = logging.getLogger(__name__)
PAUSE = 1.0


async def find_own(client: pulsar.Client, recover: Recover[S], producer_id: str) -> dict[int, Position]:
    """Where the producer's messages are between the last acknowledged entry and the sealed end.

    Tried until it succeeds: what was sent cannot be settled in any other way.
    """
    while True:
        try:
            return await _read(client, recover, producer_id)
        except PulsarError as error:
            LOGGER.warning("%s; next attempt in %.0f s", error, PAUSE)
        await asyncio.sleep(PAUSE)


async def _read(client: pulsar.Client, recover: Recover[S], producer_id: str) -> dict[int, Position]:
    link, end = recover.link, recover.end
    reader = _reader(client, recover)
    found: dict[int, Position] = {}
    if reader.has_passed(end):
        return found
    await open_whole(reader)
    try:
        while (messages := await pull_to(reader, end)) is not None:
            found.update(_own(messages, producer_id))
    finally:
        await reader.close()
    if not reader.has_passed(end):
        raise ProducerFailed(
            f"{link.topic} was trimmed before it could be searched for unanswered sends; "
            "whether they were stored is not known: keep data longer than a switch takes"
        )
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """The producer's messages among some that follow each other."""

    positions: Mapping[int, Position]
    reached: Position | None
    """The last of all of them; None if the broker, asked after a long silence, has nothing more."""
    whole: bool
    """Whether it could be read from where it was to begin: nothing since then was trimmed."""


async def own_messages(
    client: pulsar.Client, locate: Locate[S], producer_id: str
) -> AsyncGenerator[Found, None]:
    """Where the producer's messages are from the last acknowledged entry on. Close it when that is enough."""
    while True:
        reader = _reader(client, locate)
        try:
            await open_whole(reader)
            whole: bool | None = None
            while (messages := await _pull(reader)) is not None:
                if messages:
                    whole = whole if whole is not None else _begins(messages[0], locate.start)
                    yield Found(_own(messages, producer_id), messages[-1].position, whole)
            yield Found({}, None, whole if whole is not None else locate.start is None)
            return
        except PulsarError as error:
            LOGGER.warning("%s; next attempt in %.0f s", error, PAUSE)
        finally:
            await reader.close()
        await asyncio.sleep(PAUSE)


async def _pull(reader: PartitionReader) -> list[Message] | None:
    while True:
        try:
            async with asyncio.timeout(SILENCE):
                return await reader.pull()
        except TimeoutError:
            if await reader.is_silent():
                return None


def _begins(first: Message, start: EntryId | None) -> bool:
    return start is None or first.position.entry_id == start


def _reader(client: pulsar.Client, wish: Recover[S] | Locate[S]) -> PartitionReader:
    link, start = wish.link, None
    if wish.start is not None:
        # The whole entry: the acknowledged message and others in flight may share a batch.
        start = Start(Position(link.storage_topic, *wish.start))
    return PartitionReader(client, link.topic, link.storage_topic, link.partition, start)


def _own(messages: Iterable[Message], producer_id: str) -> dict[int, Position]:
    ids = ((message.message_id.partition(":"), message.position) for message in messages)
    return {int(sequence): position for (producer, _, sequence), position in ids if producer == producer_id}
