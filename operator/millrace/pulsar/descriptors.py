"""The descriptor of a composite topic in its compacted topic: read it, follow it, replace it.

Publishing is compare-and-swap without a server that knows it: open the exclusive producer (whoever was
before is fenced), write a barrier under a key of its own, read up to the barrier, compare, and only then
write. The barrier makes the end of the reading exact (see `tables`); it never replaces a descriptor, so a
writer that turns out to be late has written nothing that matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Self

import pulsar

from millrace.core.descriptor import Descriptor, DescriptorError
from millrace.pulsar import tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import (
    NotOurs,
    StaleDescriptor,
    Unavailable,
    UnreadableDescriptor,
    from_client,
)

LOGGER = logging.getLogger(__name__)

DESCRIPTOR_KEY = "descriptor"
BARRIER_KEY = "barrier"
COMPACTION_THRESHOLD = 256 * 1024
COMPACTION_CURSOR = "__compaction"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


async def ensure_descriptor_topic(
    admin: Admin,
    topic: str,
    properties: Mapping[str, str],
    *,
    may_use: Callable[[Mapping[str, str]], bool] | None = None,
    compaction_threshold: int = COMPACTION_THRESHOLD,
) -> None:
    """Create the topic so that nothing in it can be lost, or finish what an earlier attempt left undone.

    A topic that exists already is touched only if `may_use` says so of its properties (by default: they
    hold all of ours). The compaction cursor has to be there before the first write: without it the broker
    may drop what has been read before it was ever compacted.
    """
    if not await admin.create_topic(topic, properties):
        found = await admin.properties(topic)
        if not (may_use(found) if may_use else properties.items() <= found.items()):
            await _take_over_if_untouched(admin, topic, found, properties)
    await admin.set_inactive_policy(topic, deletes=False)
    await admin.set_compaction_threshold(topic, compaction_threshold)
    await admin.create_subscription(topic, COMPACTION_CURSOR, "earliest")


async def _take_over_if_untouched(
    admin: Admin, topic: str, found: Mapping[str, str], properties: Mapping[str, str]
) -> None:
    """A client that looked before us makes the broker create the topic: bare, with no owner."""
    stats = await admin.internal_stats(topic)
    if found or stats.entries > 0 or stats.last_confirmed.entry >= 0 or len(stats.ledgers) > 1:
        raise NotOurs(f"{topic} exists and is not ours; choose another name, or remove it if nobody needs it")
    await admin.update_properties(topic, properties)


async def read(client: pulsar.Client, topic: str) -> Descriptor | None:
    """The newest descriptor that can be seen now, or None. (What `publish` decides by is exact.)"""
    table = await tables.read_to_end(client, topic)
    return _parse(topic, table.get(DESCRIPTOR_KEY))


async def publish(
    client: pulsar.Client, topic: str, descriptor: Descriptor, *, expected_generation: int
) -> None:
    """Replace generation `expected_generation` (0: there is none yet) by this one, or raise StaleDescriptor.

    After Unavailable the write may or may not have happened: read again.
    """
    if descriptor.generation != expected_generation + 1:
        raise ValueError(f"generation {descriptor.generation} cannot follow {expected_generation}")
    await blocking(_publish, client, topic, descriptor, expected_generation)


def _publish(client: pulsar.Client, topic: str, descriptor: Descriptor, expected: int) -> None:
    producer = tables.open_fenced_producer(client, topic)
    try:
        barrier = producer.send(b"-", partition_key=BARRIER_KEY)
        table = tables.read_to_blocking(client, topic, tables.entry_of(barrier))
        newest = _parse(topic, table.get(DESCRIPTOR_KEY))
        found = 0 if newest is None else newest.generation
        if found != expected:
            raise StaleDescriptor(
                f"{topic} holds generation {found}, not {expected}: somebody else published; read it again",
                found=found,
                expected=expected,
            )
        producer.send(descriptor.to_json(), partition_key=DESCRIPTOR_KEY)
    except pulsar.PulsarException as error:
        raise from_client(error, f"publish generation {descriptor.generation} to {topic}") from error
    finally:
        _close(producer)


def _close(closable: pulsar.Producer | pulsar.Reader) -> None:
    try:
        closable.close()
    except pulsar.PulsarException as error:
        LOGGER.debug("closing: %s", error)  # a fenced producer is closed already


def _parse(topic: str, data: bytes | None) -> Descriptor | None:
    if data is None:
        return None
    try:
        return Descriptor.from_json(data)
    except DescriptorError as error:
        raise UnreadableDescriptor(f"{topic}: {error}") from error


class DescriptorFollower:
    """Follows the descriptor for ever, through disconnects and restarts; never back to an older generation.

    Use as an async context manager, or call `start` and `close`. It needs no thread of its own: the client's
    listener thread hands each record to the event loop.
    """

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._current: Descriptor | None = None
        self._failure: UnreadableDescriptor | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        self._reader: pulsar.Reader | None = None
        self._closed = False

    @property
    def current(self) -> Descriptor | None:
        """The newest descriptor seen so far."""
        return self._current

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to follow; returns at once. Until the topic can be read it is tried again."""
        if self._opening is None and not self._closed:
            self._opening = asyncio.create_task(self._open())

    async def close(self) -> None:
        """Stop following, for good. `current` stays readable; whoever still waits is told."""
        with self._lock:
            self._closed = True
            reader, self._reader = self._reader, None
        self._wake()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if reader is not None:
            await blocking(_close, reader)

    async def wait_for(
        self,
        predicate: Callable[[Descriptor], bool],
        timeout: float | None = None,  # noqa: ASYNC109 - reads better at the call than a context manager
    ) -> Descriptor:
        """The first descriptor from now on (the present one included) of which this is true.

        Raises TimeoutError, or UnreadableDescriptor when one arrives that this program does not understand.
        """
        async with asyncio.timeout(timeout):
            while self._current is None or not predicate(self._current):
                if self._failure is not None:
                    raise self._failure
                if self._closed:
                    raise Unavailable(f"nobody follows {self._topic} any more")
                changed = asyncio.get_running_loop().create_future()
                self._waiters.add(changed)
                try:
                    await changed
                finally:
                    self._waiters.discard(changed)
            return self._current

    async def changes(self) -> AsyncIterator[Descriptor]:
        """The present descriptor and every later one; generations may be skipped."""
        seen = 0
        while True:
            descriptor = await self.wait_for(lambda found: found.generation > seen)  # noqa: B023 - used at once
            seen = descriptor.generation
            yield descriptor

    async def _open(self) -> None:
        """The reader reconnects by itself once it exists; until then it is for us to try again."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            try:
                return await blocking(self._open_reader, loop)
            except pulsar.PulsarException as error:
                LOGGER.warning(
                    "%s; next attempt in %.1f s", from_client(error, f"follow {self._topic}"), pause
                )
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause = min(pause * 2, LONGEST_PAUSE)

    def _open_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        def hear(_: pulsar.Consumer, message: pulsar.Message) -> None:
            if message.partition_key() == DESCRIPTOR_KEY:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                    loop.call_soon_threadsafe(self._take, message.data())

        reader = self._client.create_reader(
            self._topic, pulsar.MessageId.earliest, reader_listener=hear, is_read_compacted=True
        )
        with self._lock:
            if not self._closed:
                self._reader = reader
                return
        _close(reader)

    def _take(self, data: bytes) -> None:
        try:
            descriptor = _parse(self._topic, data)
        except UnreadableDescriptor as error:
            LOGGER.error("%s", error)
            self._failure = error
            self._wake()
            return
        if descriptor is None or (self._current and descriptor.generation <= self._current.generation):
            return
        self._current, self._failure = descriptor, None
        self._wake()

    def _wake(self) -> None:
        for changed in self._waiters:
            if not changed.done():
                changed.set_result(None)
