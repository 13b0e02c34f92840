"""An asyncio consumer of a composite topic.

Which partitions may be read is decided in `millrace.core.reading`; this is its shell: one task and one native
reader (or subscription) per partition that is open, all of them in one event loop.

A task pulls what has arrived, hands it over as one batch, and pulls again when the application has taken the
last message of it. So what is read ahead is bounded by the number of open partitions: one batch here and one
in the client for each. A partition is finished when its sealed end was taken, and under a subscription when
everything up to it is acknowledged; only then may a partition of the next storage topic follow.

A consumer has native connections of its own. At the end of a sealed partition the broker says something that
the native client does not know, and the client breaks the connection and makes a new one. That does no harm
here, but a producer on the same connection would have to send again whatever was under way.
"""

# ruff: noqa: N818 - the errors' names are what is wrong

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from millrace.client.connection import DEFAULT_PULSAR_NAMESPACE, Connection, descriptor_topic
from millrace.client.descriptors import follow
from millrace.client.errors import ClientError, InvalidMessage, NoSuchPartition
from millrace.client.partitions import Message, PartitionReader, Start, pull_to
from millrace.client.places import check_after, check_options, check_stream
from millrace.client.streams import newer_than, open_patiently, open_whole, pull_unless, read_one
from millrace.client.subscriptions import PartitionSubscription
from millrace.core.descriptor import Descriptor
from millrace.core.positions import EMPTY, Position
from millrace.core.reading import Effect, Open, Reading, Sealed, Stream
from millrace.pulsar import descriptors
from millrace.pulsar.descriptors import DescriptorFollower
from millrace.pulsar.errors import Misconfigured, PulsarError

LOGGER = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds before a partition that could not be read on is opened again."""


class ConsumerClosed(ClientError):
    """The consumer was closed."""


class ConsumerFailed(ClientError):
    """The consumer cannot go on without risking the order. Open another one."""


@dataclass(frozen=True, slots=True)
class _Batch:
    messages: deque[Message]
    taken: asyncio.Future[None]


class Consumer:
    """Reads a composite topic; each group's messages come in order, also while its partitions change.

    Use within the event loop that opened it. `async for message in consumer` goes on for ever: it follows the
    topic through every switch, and ends when the consumer is closed.
    """

    @classmethod
    async def open(
        cls,
        connection: Connection,
        topic: str,
        *,
        pulsar_namespace: str = DEFAULT_PULSAR_NAMESPACE,
        subscription: str | None = None,
        read_pointer: int = 0,
        after: Mapping[Stream, Position] | Mapping[tuple[int, int], Position] | None = None,
    ) -> Consumer:
        """Find the composite topic `NAMESPACE/NAME` (or by its descriptor topic) and begin to read.

        With a `subscription` Pulsar remembers what was acknowledged, and the next consumer of that name goes
        on from there; one consumer at a time may hold it. Without one nothing is left behind in Pulsar:
        reading begins with storage topic `read_pointer`, in each partition that `after` names after the
        message given there (see `positions`), and in all others with the oldest message.
        """
        check_options(subscription, read_pointer, after)
        where = descriptor_topic(topic, pulsar_namespace)
        apart = connection.apart()
        consumer: Consumer | None = None
        try:
            follower, descriptor = await follow(apart, where)
            consumer = cls(
                apart,
                follower,
                descriptor,
                subscription=subscription,
                read_pointer=read_pointer,
                after=after or {},
            )
            await consumer._begin(where)
        except BaseException:
            await (apart if consumer is None else consumer).close()
            raise
        return consumer

    def __init__(
        self,
        connection: Connection,
        follower: DescriptorFollower,
        descriptor: Descriptor,
        *,
        subscription: str | None,
        read_pointer: int,
        after: Mapping[Any, Position],
    ) -> None:
        """Use `open`."""
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._client = connection.client
        self._follower = follower
        self._subscription = subscription
        self._read_pointer = read_pointer
        self._positions = {Stream(*key): position for key, position in after.items()}
        self._core = Reading(descriptor)
        self._readers: dict[Stream, PartitionReader] = {}
        self._opening: dict[Stream, asyncio.Task[None]] = {}
        self._sealed: dict[Stream, asyncio.Future[None]] = {}
        self._batches: deque[_Batch] = deque()
        self._news = asyncio.Event()
        """Something can be taken, or the consumer became unusable."""
        self._closed = False
        self._failure: ConsumerFailed | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ConsumerClosed:
            raise StopAsyncIteration from None

    def tail(self) -> Self:
        """Every message, for ever; the same as iterating over the consumer."""
        return self

    @property
    def descriptor(self) -> Descriptor:
        """The composite topic as this consumer knows it now."""
        return self._core.descriptor

    @property
    def positions(self) -> dict[Stream, Position]:
        """The newest message that was taken from each partition.

        Kept with what became of the messages, and given to `open` as `after`, it continues exactly here.
        """
        return dict(self._positions)

    async def receive(self) -> Message:
        """Wait for the next message. If the wait is cancelled, no message is lost."""
        while not self._batches:
            if self._closed:
                raise ConsumerClosed("the consumer is closed; open another one")
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        batch = self._batches[0]
        message = batch.messages.popleft()
        if not batch.messages:
            self._batches.popleft()
            if not batch.taken.done():
                batch.taken.set_result(None)
        self._positions[Stream(message.position.storage_topic, message.partition)] = message.position
        return message

    async def ack(self, message: Message) -> None:
        """Acknowledge a message: the subscription does not deliver it again.

        Acknowledge a group's messages in order. Where the next storage topic waits for the end of this one,
        it waits for the acknowledgements as well.
        """
        if self._subscription is None:
            raise Misconfigured(
                "a consumer without a subscription has nothing to acknowledge to: open it with "
                "`subscription`, or keep its `positions`"
            )
        if self._closed:
            raise ConsumerClosed("the consumer is closed; the message will be delivered to the next one")
        stream = Stream(message.position.storage_topic, message.partition)
        reader = self._readers.get(stream)
        if not isinstance(reader, PartitionSubscription):
            raise InvalidMessage(
                f"message {message.position} of partition {message.partition} does not wait for an "
                "acknowledgement: it was acknowledged before, or another consumer delivered it"
            )
        await reader.ack(message.position)

    async def consume(self, storage_topic: int, partition: int, position: Position | None = None) -> Message:
        """One message by its place: at this position, or the first after it if it is no longer there.

        Independent of what this consumer iterates over. Waits for it if the partition is still written to;
        raises EndOfPartition if it is sealed and ends before.
        """
        stream = Stream(storage_topic, partition)
        check_stream(self.descriptor, stream)
        if position is not None and position.storage_topic != storage_topic:
            raise NoSuchPartition(f"position {position} is not one of storage topic {storage_topic}")
        return await read_one(self._client, self._follower, self.descriptor, stream, position)

    async def close(self) -> None:
        """Stop reading and disconnect. What was not taken is lost to nobody: it is read again next time."""
        self._closed = True
        self._batches.clear()
        self._news.set()
        for task in self._tasks:
            task.cancel()
        # Shielded: a time-out around this must not leave connections behind.
        await asyncio.shield(asyncio.ensure_future(self._disconnect()))

    async def _disconnect(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        readers, self._readers = list(self._readers.values()), {}
        await asyncio.gather(self._follower.close(), *(reader.close() for reader in readers))
        await self._connection.close()

    # One partition

    async def _read(self, effect: Open) -> None:
        """From where reading begins to the sealed end; then let others follow."""
        stream = effect.stream
        if stream not in self._readers:
            self._connect(stream, self._reader(stream))
        while await self._connected(stream):
            reader = self._readers[stream]
            try:
                while (messages := await self._pull(stream, reader)) is not None:
                    await self._hand_over(newer_than(self._positions.get(stream), messages))
                break
            except PulsarError as error:
                if not error.retryable:
                    raise
                LOGGER.warning("%s; next attempt in %.0f s", error, PAUSE)
            await reader.close()
            await asyncio.sleep(PAUSE)
            # Everything pulled was taken: a reader goes on after `positions`, a subscription knows itself.
            again = reader if isinstance(reader, PartitionSubscription) else self._reader(stream)
            self._connect(stream, again)
        reader = self._readers[stream]
        if isinstance(reader, PartitionSubscription):
            await reader.finish()
        await reader.close()
        del self._readers[stream], self._sealed[stream]
        LOGGER.debug("%s is read to its end %s", effect.topic, self._core.end_of(stream))
        self._carry_out(self._core.finished(stream))

    def _connect(self, stream: Stream, reader: PartitionReader) -> None:
        """Begin to connect: for as long as it takes, or until the partition proves to be empty."""
        self._readers[stream] = reader
        self._opening[stream] = self._spawn(open_patiently(reader))

    async def _connected(self, stream: Stream) -> bool:
        """Wait for the connection. False for an empty, sealed partition: the broker may not open it."""
        opening = self._opening.get(stream)
        if opening is not None:
            await asyncio.wait((opening, self._sealed[stream]), return_when=asyncio.FIRST_COMPLETED)
            if self._core.end_of(stream) == EMPTY:
                opening.cancel()
                return False
            await asyncio.wait((opening,))
            self._opening.pop(stream).result()
        return True

    async def _pull(self, stream: Stream, reader: PartitionReader) -> list[Message] | None:
        end = self._core.end_of(stream)
        if end is None:
            return await pull_unless(reader, self._sealed[stream])
        if isinstance(reader, PartitionSubscription):
            return await reader.pull_to(end)
        return await pull_to(reader, end)

    async def _hand_over(self, messages: Sequence[Message]) -> None:
        """Offer the messages, and wait until the last of them is taken."""
        if messages:
            batch = _Batch(deque(messages), self._loop.create_future())
            self._batches.append(batch)
            self._news.set()
            await batch.taken

    def _reader(self, stream: Stream) -> PartitionReader:
        topic = self.descriptor.storage_topics[stream.storage_topic].partition_topic(stream.partition)
        if self._subscription is not None:
            return PartitionSubscription(self._client, topic, *stream, self._subscription)
        position = self._positions.get(stream)
        start = None if position is None else Start(position, inclusive=False)
        return PartitionReader(self._client, topic, *stream, start)

    # All of them

    async def _begin(self, where: str) -> None:
        # What is found first may be an old one, and what is wished for is to be compared with the newest.
        newest = await descriptors.read(self._client, where) or self.descriptor
        if newest.generation < self.descriptor.generation:
            newest = self.descriptor
        check_stream(newest, Stream(self._read_pointer, 0))
        for stream, position in self._positions.items():
            check_after(newest, stream, position)
        self._core = Reading(newest, read_pointer=self._read_pointer)
        for stream in self._to_hold():
            self._readers[stream] = self._reader(stream)
        # The newest topic first: the operator copies a topic's subscriptions to the next one when it
        # switches, so there is no moment at which a switch could be missed.
        for index in sorted({stream.storage_topic for stream in self._readers}, reverse=True):
            readers = [reader for stream, reader in self._readers.items() if stream.storage_topic == index]
            outcomes = await asyncio.gather(*map(open_whole, readers), return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        self._carry_out(self._core.begin())
        self._spawn(self._follow())

    async def _follow(self) -> None:
        async for descriptor in self._follower.changes():
            effects = self._core.advanced(descriptor)
            for stream in self._to_hold():
                self._connect(stream, self._reader(stream))
            self._carry_out(effects)
            for stream, opening in self._opening.items():
                if self._core.end_of(stream) == EMPTY:
                    opening.cancel()

    def _to_hold(self) -> list[Stream]:
        """Where a subscription needs a cursor, so that no data is trimmed before its turn."""
        if self._subscription is None:
            return []
        topics = self.descriptor.storage_topics[: self.descriptor.produce_pointer + 1]
        streams = (Stream(i, p) for i, topic in enumerate(topics) for p in range(topic.layout.partitions))
        return [
            stream
            for stream in streams
            if stream not in self._readers
            and not self._core.is_finished(stream)
            and self._core.end_of(stream) != EMPTY
        ]

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(stream):
                    self._sealed[stream] = self._loop.create_future()
                    self._spawn(self._read(effect))
                case Sealed(stream):
                    self._sealed[stream].set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or self._closed:
            return
        LOGGER.error("the consumer gives up: %s", error)
        if self._failure is None:
            self._failure = ConsumerFailed(str(error))
            self._failure.__cause__ = error
        for other in self._tasks:
            other.cancel()  # what was handed over is still delivered, then the application hears of it
        self._news.set()
