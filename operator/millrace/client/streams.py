"""What reading a partition needs beyond the reader itself: patience at opening, and an eye on its sealing."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Any

import pulsar

from millrace.client.errors import EndOfPartition
from millrace.client.links import FIRST_PAUSE, LONGEST_PAUSE, REFUSAL_PATIENCE
from millrace.client.partitions import Message, PartitionReader, Start, pull_to
from millrace.core.descriptor import Descriptor
from millrace.core.positions import Position
from millrace.core.reading import Stream
from millrace.pulsar.descriptors import DescriptorFollower
from millrace.pulsar.errors import Conflict, Forbidden, NotFound, PulsarError, Unauthorized

LOGGER = logging.getLogger(__name__)


async def open_whole(reader: PartitionReader) -> None:
    """Connect. If we are cancelled meanwhile, nothing stays connected behind us."""
    opening = asyncio.ensure_future(reader.open())
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        # A connection that is being made cannot be called back: see it through, and end it.
        await asyncio.wait((opening,))
        if not opening.cancelled():
            opening.exception()
        await reader.close()
        raise


async def open_patiently(reader: PartitionReader) -> None:
    """Connect, however long Pulsar is away. Raises what does not go away by itself."""
    loop = asyncio.get_running_loop()
    patient_until = loop.time() + REFUSAL_PATIENCE
    pause = FIRST_PAUSE
    while True:
        try:
            return await open_whole(reader)
        except PulsarError as error:
            if not _is_worth_waiting(error, patient=loop.time() < patient_until):
                raise
            LOGGER.warning("%s; next attempt in %.1f s", error, pause)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        pause = min(pause * 2, LONGEST_PAUSE)


def _is_worth_waiting(error: PulsarError, *, patient: bool) -> bool:
    match error:
        case Unauthorized() | Forbidden() | NotFound() | Conflict():
            return patient
        case _:
            return error.retryable


async def pull_unless(reader: PartitionReader, over: asyncio.Future[Any]) -> list[Message]:
    """The next messages of a partition that is still written to; none if `over` comes true first."""
    pulling = asyncio.ensure_future(reader.pull())
    try:
        await asyncio.wait((pulling, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not pulling.done():
            pulling.cancel()  # loses nothing: the next pull gets it
            await asyncio.wait((pulling,))
    return [] if pulling.cancelled() else pulling.result()


def newer_than(position: Position | None, messages: Iterable[Message]) -> list[Message]:
    """Without repetitions: a native reader that reconnects begins with the message it gave out last."""
    newer: list[Message] = []
    for message in messages:
        if position is None or message.position > position:
            position = message.position
            newer.append(message)
    return newer


async def read_one(
    client: pulsar.Client,
    follower: DescriptorFollower,
    descriptor: Descriptor,
    stream: Stream,
    position: Position | None,
) -> Message:
    """The message at this position, or the first after it. Waits for it unless the partition is sealed."""
    topic = descriptor.storage_topics[stream.storage_topic]
    name = topic.partition_topic(stream.partition)
    behind = EndOfPartition(f"{name} is sealed, and has no message at or after {position or 'its beginning'}")
    reader = PartitionReader(client, name, *stream, None if position is None else Start(position))
    if topic.sealed is not None and reader.has_passed(topic.sealed[stream.partition]):
        raise behind  # without opening it: of an empty, sealed partition the broker may not be able to
    sealing = asyncio.ensure_future(
        follower.wait_for(lambda known: known.produce_pointer > stream.storage_topic)
    )
    try:
        await open_whole(reader)
        messages: list[Message] | None = []
        while messages is not None and not messages:
            if not sealing.done():
                messages = await pull_unless(reader, sealing)
            else:
                ends = sealing.result().storage_topics[stream.storage_topic].sealed
                assert ends is not None, "every storage topic before the pointer is sealed"
                messages = await pull_to(reader, ends[stream.partition])
        if messages is None:
            raise behind
        return messages[0]
    finally:
        sealing.cancel()
        await asyncio.wait((sealing,))
        if not sealing.cancelled():
            sealing.exception()  # told already, if it mattered
        await reader.close()
