"""The single writer of one partition of a retry or dead-letter queue.

The owner of the shard holds it, and nobody else: opening it fences the owner before. A group's next copy is
produced only after the previous one is stored (DESIGN 5.2), which is for the caller to keep; copies of
different groups may be under way at once. After a lost connection the client may store a copy twice: both
have the same main position, and the reader drops the second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pulsar

from millrace.core.positions import Position
from millrace.pulsar.clients import blocking_whole
from millrace.pulsar.fencedwriters import FencedWriter, message_of, open_writer_producer

Produced = Callable[[Position | None], None]
"""Where the copy is, in the queue's own storage topic; None if no broker of this configuration takes it."""


class ParkedQueue:
    """Appends parked copies to one `-partition-N` topic. Use within the event loop that opened it."""

    @classmethod
    async def open(
        cls, client: pulsar.Client, partition_topic: str, *, storage_topic: int = 0
    ) -> ParkedQueue:
        """Take the partition over. `storage_topic` is its storage topic's index in the queue.

        Open it only while holding the shard's state table: this evicts whoever came before, newer or not.
        """
        producer = await blocking_whole(
            lambda: open_writer_producer(client, partition_topic), pulsar.Producer.close
        )
        return cls(FencedWriter(partition_topic, producer), storage_topic)

    def __init__(self, writer: FencedWriter, storage_topic: int) -> None:
        """Use `open`."""
        self._writer = writer
        self._storage_topic = storage_topic
        self.topic = writer.topic
        self.lost = writer.lost
        """Set when the queue cannot be written to any more; `reason` says why. Open another one."""

    @property
    def reason(self) -> Exception | None:
        """Why it is lost; None after a `close` of our own."""
        return self._writer.reason

    @property
    def pending(self) -> int:
        """Copies that are not stored yet."""
        return self._writer.pending

    def produce(self, payload: bytes, group: str, properties: dict[str, str], done: Produced) -> None:
        """Append a copy. `done` is called in the event loop, in the order of the calls; not after a loss.

        `done(None)` means that the copy is too large for the broker, with all that was added to it; it
        concerns this copy only, and may be told before earlier ones are stored.
        """
        message = message_of(group, payload, properties)
        self._writer.send(message, partial(self._stored, done))

    async def drain(self) -> None:
        """Wait until everything that was produced is stored, or the queue is lost."""
        await self._writer.drain()

    async def close(self) -> None:
        """Disconnect; sets `lost` without a reason."""
        await self._writer.close()

    def _stored(self, done: Produced, message_id: Any) -> None:
        if message_id is None:
            done(None)
            return
        done(
            Position(
                self._storage_topic, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
            )
        )
