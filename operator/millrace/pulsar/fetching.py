"""Read single messages of a partition again, by position: for those that were not held in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

import pulsar

from millrace.core.positions import EntryId, Position
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Unavailable, from_client
from millrace.pulsar.messageids import whole_entry

READ_AHEAD = 100
FORWARD = 200
"""Entries that are read over rather than opening another reader."""

UNDECODABLE = "\ufffd"
"""The group of all messages of a partition whose key is not UTF-8: one group, so that their order is kept."""


class Fields(NamedTuple):
    """What a message holds."""

    group: str
    payload: bytes
    properties: dict[str, str]
    """All of them, with the producer's own id under `mr`."""
    publish_time: int
    """Milliseconds since the epoch, by the producer's clock."""


def fields_of(raw: Any) -> Fields:
    """Everything that a shard needs of a native message, which must not be kept: it holds its whole batch."""
    try:
        group = raw.partition_key()
        properties = raw.properties()
    except UnicodeDecodeError:
        return Fields(UNDECODABLE, raw.data(), {}, raw.publish_timestamp())
    return Fields(group, raw.data(), properties, raw.publish_timestamp())


class Fetcher:
    """Reads messages of one topic again. Ascending positions go fast: one reader is kept and read on."""

    def __init__(self, client: pulsar.Client, topic: str, *, within: float = 30.0) -> None:
        self._client = client
        self._topic = topic
        self._within = within
        self._lock = asyncio.Lock()
        self._reader: pulsar.Reader | None = None
        self._at: tuple[int, int, int] | None = None
        """What was read last."""
        self._peeked: tuple[tuple[int, int, int], Fields] | None = None
        """Read, and not asked for yet."""

    async def fetch(self, position: Position) -> Fields | None:
        """The message at this position; None if it is no longer there. One after another.

        Raises Unavailable if it does not come in time: whether it is there is not known then.
        """
        async with self._lock:
            return await blocking(self._fetch, position)

    async def close(self) -> None:
        """Disconnect."""
        async with self._lock:
            await blocking(self._close)

    def _fetch(self, position: Position) -> Fields | None:
        target = (position.ledger, position.entry, position.batch)
        deadline = time.monotonic() + self._within
        try:
            while True:
                key, fields = self._next(target, position.entry_id, deadline)
                if key == target:
                    return fields
                if key > target:
                    self._peeked = (key, fields)
                    return None
        except pulsar.PulsarException as error:
            self._close()
            if isinstance(error, pulsar.Timeout):
                raise Unavailable(
                    f"cannot read {position} of {self._topic} within {self._within:.0f} s; "
                    "it will be tried again"
                ) from error
            raise from_client(error, f"read {position} of {self._topic}") from error

    def _next(
        self, target: tuple[int, int, int], entry: EntryId, deadline: float
    ) -> tuple[tuple[int, int, int], Fields]:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            if self._is_ahead(peeked[0], target):
                return peeked
        if self._reader is None or self._at is None or not self._is_ahead(self._at, target, inclusive=False):
            self._close()
            self._reader = self._client.create_reader(
                self._topic,
                whole_entry(*entry),
                receiver_queue_size=READ_AHEAD,
                start_message_id_inclusive=True,
            )
        raw = self._reader._reader.read_next(max(1, int((deadline - time.monotonic()) * 1000)))
        message_id = raw.message_id()
        self._at = (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
        return self._at, fields_of(raw)

    @staticmethod
    def _is_ahead(at: tuple[int, int, int], target: tuple[int, int, int], *, inclusive: bool = True) -> bool:
        """Whether the target can be reached from here by reading on, and soon."""
        if not (at <= target if inclusive else at < target):
            return False
        return at[0] == target[0] and target[1] - at[1] <= FORWARD

    def _close(self) -> None:
        reader, self._reader, self._at, self._peeked = self._reader, None, None, None
        if reader is not None:
            with contextlib.suppress(pulsar.PulsarException):
                reader.close()
