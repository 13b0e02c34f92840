"""The state table of one shard: the newest state of each group, under the fence (DESIGN 5.2).

An ExclusiveWithFencing producer is "last to arrive", not "highest epoch". So whoever opens the table writes a
barrier, reads up to the barrier, stops if somebody of a higher epoch was there, and only then writes its own
epoch. An old owner that comes late evicts the new one, which notices and comes again; but it never writes a
record that matters, so there is none for compaction to keep.

Two that open at the same moment may both be let in (see `echoes`). So an owner reads its table back for as
long as it holds it: a record of anybody else means that it is lost, and a heartbeat counts only when it was
read back with nothing of anybody else before it. So what counted of an owner before was sent before our epoch
was stored.

What is in the topic, by key: `owner` (epoch, and whether it was given back), `heartbeat`, `barrier`, and one
record a group under `g:` and the group id, so that no group can be called like one of ours; and notes of the
shard about itself under `n:`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulsar

from millrace.pulsar import tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking, blocking_whole
from millrace.pulsar.descriptors import ensure_descriptor_topic
from millrace.pulsar.echoes import Echo
from millrace.pulsar.errors import Fenced, PulsarError, UnreadableTable
from millrace.pulsar.fencedwriters import (
    FencedWriter,
    message_of,
    open_writer_producer,
    send_and_wait,
    too_large,
)

VERSION = 1
OWNER_KEY, HEARTBEAT_KEY, BARRIER_KEY = "owner", "heartbeat", "barrier"
GROUP_PREFIX = "g:"
NOTE_PREFIX = "n:"

COMPACTION_THRESHOLD = 4 * 1024 * 1024
"""Bytes of new records after which the broker compacts: each time it writes the whole table again."""


@dataclass(frozen=True, slots=True)
class PreviousOwner:
    """Who wrote the owner record that was there when the table was opened."""

    epoch: int
    released: bool
    """It gave the table back with nothing in flight: nothing has to be waited for."""


async def ensure_state_topic(admin: Admin, topic: str, properties: Mapping[str, str]) -> None:
    """Create the topic so that nothing in it can be lost, or finish what an earlier attempt left undone."""
    await ensure_descriptor_topic(admin, topic, properties, compaction_threshold=COMPACTION_THRESHOLD)


class StateTable:
    """The table as its one owner holds it. Use within the event loop that opened it.

    Everything is written through one producer in the order of the calls. When anything goes wrong, `lost` is
    set and `reason` says why; then nothing more is written, and no `done` is called any more.
    """

    @classmethod
    async def open(cls, client: pulsar.Client, topic: str, epoch: int, *, within: float = 60.0) -> StateTable:
        """Take the table over, or raise Fenced if an owner of a higher epoch was there.

        Raises other PulsarErrors when Pulsar cannot be reached or the table not be read in time. Whoever held
        the table before is evicted in any case. A table of the same epoch is taken to be our own.
        """
        opened = await blocking_whole(lambda: _open(client, topic, epoch, within), _Opened.close)
        return cls(topic, epoch, opened)

    def __init__(self, topic: str, epoch: int, opened: _Opened) -> None:
        """Use `open`."""
        self.topic = topic
        self.epoch = epoch
        self.entries = opened.entries
        """What the table held when it was opened, by group. Not kept up to date: the caller owns it now."""
        self.notes = opened.notes
        """Likewise, what shards noted about themselves."""
        self.previous_owner = opened.previous_owner
        """None in a new table."""
        self.opened_at = opened.owned_at
        """Monotonic time before which every heartbeat of an owner before us was sent, if it counts at all."""
        self.last_heartbeat = opened.claimed_at
        """Monotonic time at which the last heartbeat that counts was sent. (The first is our epoch.)"""
        self._writer = FencedWriter(topic, opened.producer)
        self.lost = self._writer.lost
        self._beats: dict[bytes, float] = {}
        """Heartbeats that were not read back yet, and when they were sent."""
        self._beat = 0
        self._echo = opened.echo
        self._echo.start(HEARTBEAT_KEY, self._heard, self._alien, self._writer.fail)

    @property
    def reason(self) -> PulsarError | None:
        """Why it is lost; None after a `close` of our own."""
        return self._writer.reason

    @property
    def pending(self) -> int:
        """Records that are not stored yet."""
        return self._writer.pending

    def write(self, group: str, value: bytes | None, done: Callable[[], None]) -> None:
        """Write the state of a group, or remove it. `done` is called in the event loop when it is stored."""
        key = GROUP_PREFIX + group
        self._writer.send(message_of(key, value), partial(self._stored, key, done))

    def note(self, name: str, value: bytes, done: Callable[[], None]) -> None:
        """Write something that concerns the shard as a whole, in order with everything else."""
        key = NOTE_PREFIX + name
        self._writer.send(message_of(key, value), partial(self._stored, key, done))

    def heartbeat(self) -> None:
        """Append one heartbeat; to be called each second. See `last_heartbeat`."""
        self._beat += 1
        value = f"{self.epoch}:{self._beat}".encode()
        self._beats[value] = time.monotonic()
        self._writer.send(message_of(HEARTBEAT_KEY, value), partial(self._stored, HEARTBEAT_KEY, _nothing))

    async def drain(self) -> None:
        """Wait until everything that was written is stored, or the table is lost."""
        await self._writer.drain()

    async def release(self) -> None:
        """Give the table back and close it: nothing is in flight, and nothing will be.

        Call it only when that is so: the next owner does not wait. Nothing is written if the table is lost.
        """
        record = _owner_record(self.epoch, released=True)
        self._writer.send(message_of(OWNER_KEY, record), partial(self._stored, OWNER_KEY, _nothing))
        try:
            await self.drain()
        finally:
            await self.close()

    async def close(self) -> None:
        """Disconnect; sets `lost` without a reason. Whatever is unanswered may be stored or not."""
        await self._writer.close()
        await blocking(self._echo.close)

    def _heard(self, value: bytes) -> None:
        sent = self._beats.pop(value, None)  # None: read once more after a reconnect
        if sent is not None and not self.lost.is_set():
            self.last_heartbeat = sent

    def _alien(self, key: str) -> None:
        self._writer.fail(
            Fenced(f"somebody else wrote {key[:64]!r} to {self.topic}: look at the claim before trying again")
        )

    def _stored(self, key: str, done: Callable[[], None], message_id: Any) -> None:
        if message_id is None:
            self._writer.fail(too_large(self.topic, key))
        else:
            done()


@dataclass(frozen=True, slots=True)
class _Opened:
    producer: pulsar.Producer
    entries: dict[str, bytes]
    notes: dict[str, bytes]
    previous_owner: PreviousOwner | None
    claimed_at: float
    owned_at: float
    echo: Echo

    def close(self) -> None:
        _close(self.producer)
        self.echo.close()


def _open(client: pulsar.Client, topic: str, epoch: int, within: float) -> _Opened:
    deadline = time.monotonic() + within
    producer = open_writer_producer(client, topic)
    echo = None
    try:
        barrier = send_and_wait(producer, topic, BARRIER_KEY, b"-")
        remaining = max(1.0, deadline - time.monotonic())
        table = tables.read_to_blocking(client, topic, tables.entry_of(barrier), timeout=remaining)
        previous = _parse_owner(topic, table.get(OWNER_KEY))
        if previous is not None and previous.epoch > epoch:
            raise Fenced(
                f"{topic} belongs to epoch {previous.epoch}, ours is {epoch}: the shard has a newer owner"
            )
        echo = Echo(client, topic, barrier, producer._producer.producer_name())
        claimed_at = time.monotonic()
        send_and_wait(producer, topic, OWNER_KEY, _owner_record(epoch, released=False))
        owned_at = time.monotonic()
    except BaseException:
        _close(producer)
        if echo is not None:
            echo.close()
        raise
    entries, notes = _below(GROUP_PREFIX, table), _below(NOTE_PREFIX, table)
    return _Opened(producer, entries, notes, previous, claimed_at, owned_at, echo)


def _below(prefix: str, table: tables.Table) -> dict[str, bytes]:
    return {key[len(prefix) :]: value for key, value in table.items() if key.startswith(prefix)}


def _close(producer: pulsar.Producer) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # a fenced producer is closed already
        producer.close()


def _owner_record(epoch: int, *, released: bool) -> bytes:
    return json.dumps({"version": VERSION, "epoch": epoch, "released": released}).encode()


def _parse_owner(topic: str, data: bytes | None) -> PreviousOwner | None:
    if data is None:
        return None
    try:
        record = json.loads(data)
        return PreviousOwner(int(record["epoch"]), bool(record.get("released", False)))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableTable(f"{topic}: the owner record {data[:100]!r} cannot be read: {error}") from error


def _nothing() -> None:
    """For records that nobody waits for."""
