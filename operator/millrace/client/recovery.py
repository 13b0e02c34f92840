"""What a closed partition holds of a producer's unanswered sends."""

from __future__ import annotations

import asyncio
import logging

import pulsar

from millrace.client.errors import ProducerFailed
from millrace.client.partitions import PartitionReader, Start, pull_to
from millrace.core.positions import Position
from millrace.core.sending import Recover, S
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
    start = None
    if recover.start is not None:
        # The whole entry: the acknowledged message and others in flight may share a batch.
        start = Start(Position(link.storage_topic, *recover.start))
    reader = PartitionReader(client, link.topic, link.storage_topic, link.partition, start)
    found: dict[int, Position] = {}
    if reader.has_passed(end):
        return found
    await reader.open()
    try:
        while (messages := await pull_to(reader, end)) is not None:
            for message in messages:
                producer, _, sequence = message.message_id.partition(":")
                if producer == producer_id:
                    found[int(sequence)] = message.position
    finally:
        await reader.close()
    if not reader.has_passed(end):
        raise ProducerFailed(
            f"{link.topic} was trimmed before it could be searched for unanswered sends; "
            "whether they were stored is not known: keep data longer than a switch takes"
        )
    return found
