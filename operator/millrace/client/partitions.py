"""Read one partition of a storage topic from a position to its sealed end, or for ever.

The client has no "end of topic" for Python, and what the broker calls the last message is wrong after an
unload. So the end comes from the descriptor, and whether the end was reached is decided by the ids of what
was read. One entry may hold a batch: it is read to its last message.

Nothing is acknowledged here and no cursor is left behind: a reader is not durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulsar

from millrace.core.positions import EMPTY, EntryId, Position
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import from_client
from millrace.pulsar.messageids import has_passed, whole_entry
from millrace.pulsar.receiving import Receiving

LOGGER = logging.getLogger(__name__)

SILENCE = 10.0
"""Seconds of silence after which a sealed partition that says it has nothing more is believed."""

PULL = 256
"""Messages taken over at once; also the client's own read-ahead, so that memory is bounded by partitions."""

ID_PROPERTY = "mr"
"""Reserved: producer id and sequence, by which a producer recognises its own messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a composite topic."""

    group_id: str
    payload: bytes
    properties: Mapping[str, str]
    position: Position
    partition: int
    publish_time: float
    """Seconds since the epoch, by the producer's clock."""
    message_id: str
    """PRODUCER:SEQUENCE, the same wherever the message ended up; empty if no producer of ours sent it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: at this message, or after it."""

    position: Position
    inclusive: bool = True


class PartitionReader:
    """Pulls messages of one partition. One task at a time may pull; cancelling a pull loses nothing."""

    def __init__(
        self, client: pulsar.Client, topic: str, storage_topic: int, partition: int, start: Start | None
    ) -> None:
        self.storage_topic = storage_topic
        self.partition = partition
        self._client = client
        self.topic = topic
        self._start = start
        self._reader: pulsar.Reader | None = None
        self._receiving: Receiving | None = None
        self._next: asyncio.Future[list[Any]] | None = None
        self._last: pulsar.MessageId | None = None

    async def open(self, *, latest: bool = False) -> None:
        """Connect. `latest` begins with what is written from now on."""
        start_id = pulsar.MessageId.latest if latest else pulsar.MessageId.earliest
        if self._start is not None:
            # Always the whole entry: what comes before the position within its batch is dropped below.
            start_id = whole_entry(*self._start.position.entry_id)
        try:
            self._reader = await blocking(
                self._client.create_reader,
                self.topic,
                start_id,
                receiver_queue_size=PULL,
                start_message_id_inclusive=not latest,
            )
        except pulsar.PulsarException as error:
            raise from_client(error, f"read {self.topic}") from error
        native: Any = self._reader
        self._receiving = Receiving(native._reader.read_next, PULL)

    async def close(self) -> None:
        """Disconnect."""
        reader, self._reader = self._reader, None
        if self._receiving is not None:
            self._receiving.close()
        if reader is not None:
            with contextlib.suppress(pulsar.PulsarException, ValueError):  # closed already, with its client
                await blocking(reader.close)
        if self._next is not None:
            self._next.cancel()

    def has_passed(self, end: EntryId) -> bool:
        """Whether everything up to the sealed end was pulled (or lies before the start)."""
        if end == EMPTY or self._last is not None:
            return has_passed(end, self._last)
        return self._start is not None and self._start.position.entry_id > end

    async def pull(self) -> list[Message]:
        """Wait for messages; at least one, unless all that came were before the start."""
        assert self._reader is not None, "open it first"
        if self._next is None:
            self._next = self._read_next()
        raw = await asyncio.shield(self._next)
        self._next = None
        return [message for message in map(self._take, raw) if message is not None]

    async def is_silent(self) -> bool:
        """Whether the broker says that nothing more can be read. Ask only after some silence."""
        assert self._reader is not None, "open it first"
        try:
            return bool(self._reader.is_connected()) and not await blocking(
                self._reader.has_message_available
            )
        except pulsar.PulsarException:
            return False

    def _read_next(self) -> asyncio.Future[list[Any]]:
        assert self._receiving is not None, "open it first"
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def came(messages: list[Any], error: pulsar.PulsarException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(messages)
            else:
                future.set_exception(from_client(error, f"read {self.topic}"))
                future.exception()  # nobody may be waiting any more

        self._receiving.ask(came)
        return future

    def _take(self, raw: Any) -> Message | None:
        message_id = raw.message_id()
        self._last = message_id
        position = Position(
            self.storage_topic, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
        )
        start = self._start
        if start is not None and (
            position < start.position or (position == start.position and not start.inclusive)
        ):
            return None
        properties = raw.properties()
        own_id = properties.pop(ID_PROPERTY, "")
        return Message(
            group_id=raw.partition_key(),
            payload=raw.data(),
            properties=properties,
            position=position,
            partition=self.partition,
            publish_time=raw.publish_timestamp() / 1000,
            message_id=own_id,
        )


async def pull_to(reader: PartitionReader, end: EntryId) -> list[Message] | None:
    """The next messages of a sealed partition; None when its end was reached.

    A sealed partition may have been trimmed by its retention. Then its end never comes: a long silence, and
    the broker's word that there is nothing, end it too.
    """
    while not reader.has_passed(end):
        try:
            async with asyncio.timeout(SILENCE):
                return await reader.pull()
        except TimeoutError:
            if await reader.is_silent():
                LOGGER.warning(
                    "%s: nothing is left up to %s; its retention has trimmed it", reader.topic, end
                )
                return None
    return None
