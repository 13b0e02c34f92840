"""An asyncio producer of a composite topic.

What to send where, and when, is decided in `millrace.core.sending`; this is its shell: one native producer
per partition, opened at first use, and one event loop in which everything but the native client's callbacks
runs.

Callbacks come one per message on the client's thread; they are gathered, and the event loop is woken once
for all that have gathered. A message is one object from `send` to its acknowledgement.

Order depends on the native client never refusing a message while it accepts a later one. So its queue is
larger than what we let out, and sends never time out there: a message that timed out may be stored or not,
and the client would go on with the next. It reconnects and repeats, in order, for as long as it takes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self

import _pulsar
import pulsar

from millrace.client.connection import DEFAULT_PULSAR_NAMESPACE, Connection, descriptor_topic
from millrace.client.descriptors import check_writable, follow_to_write, is_passed_by
from millrace.client.errors import (
    PayloadTooLarge,
    ProducerClosed,
    ProducerFailed,
    QueueFull,
)
from millrace.client.links import close_producer, open_producer
from millrace.client.messages import MAX_MESSAGE_SIZE, OVERHEAD, Outgoing
from millrace.client.partitions import ID_PROPERTY
from millrace.client.recovery import find_own, own_messages
from millrace.client.room import Room
from millrace.core.descriptor import Descriptor
from millrace.core.positions import Position
from millrace.core.sending import (
    Close,
    Complete,
    Effect,
    Link,
    Locate,
    Missing,
    Open,
    Recover,
    Sending,
    Transmit,
)
from millrace.pulsar.descriptors import DescriptorFollower
from millrace.pulsar.errors import TopicTerminated

LOGGER = logging.getLogger(__name__)

# As numbers: comparing the client's own result objects takes a microsecond a message.
OK = int(_pulsar.Result.Ok)
TERMINATED = int(_pulsar.Result.TopicTerminated)
TOO_BIG = int(_pulsar.Result.MessageTooBig)


class Producer:
    """Sends messages to a composite topic; keeps each group's order, also while its partitions change.

    Use within the event loop that opened it. Any number of tasks may send; a group's messages are stored in
    the order of the calls. Several producers may write to one topic; the order between them is whatever it
    happens to be.
    """

    @classmethod
    async def open(
        cls,
        connection: Connection,
        topic: str,
        *,
        pulsar_namespace: str = DEFAULT_PULSAR_NAMESPACE,
        max_pending_messages: int = 10_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        max_message_size: int = MAX_MESSAGE_SIZE,
        batch_delay: float = 0.005,
    ) -> Producer:
        """Find the composite topic `NAMESPACE/NAME` (or by its descriptor topic) and be ready to send.

        `max_pending_*` bound what is not acknowledged; beyond them `send` waits. `max_message_size` is what
        the broker was configured to accept. `batch_delay` is how long a message may wait for company, in
        seconds.
        """
        follower, descriptor = await follow_to_write(connection, descriptor_topic(topic, pulsar_namespace))
        return cls(
            connection.client,
            connection.reading_client,
            follower,
            descriptor,
            max_pending_messages=max_pending_messages,
            max_pending_bytes=max_pending_bytes,
            max_message_size=max_message_size,
            batch_delay=batch_delay,
        )

    def __init__(
        self,
        client: pulsar.Client,
        reading_client: pulsar.Client,
        follower: DescriptorFollower,
        descriptor: Descriptor,
        *,
        max_pending_messages: int,
        max_pending_bytes: int,
        max_message_size: int,
        batch_delay: float,
    ) -> None:
        """Use `open`."""
        self.id = secrets.token_urlsafe(6)
        """Names this producer in the messages it sends."""
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._reading_client = reading_client
        self._follower = follower
        self._core: Sending[Outgoing] = Sending(descriptor)
        self._natives: dict[Link[Outgoing], pulsar.Producer] = {}
        self._filled: dict[Link[Outgoing], int] = {}
        """Bytes that may be in each one's open batch."""
        self._max_messages = max_pending_messages
        self._max_message_size = max_message_size
        self._batch_delay = batch_delay
        self._sequence = 0
        self._room = Room(max_pending_messages, max_pending_bytes)
        self._waiting: set[Outgoing] = set()
        """Sends for which there was no room yet."""
        self._answers: deque[tuple[Link[Outgoing], int, Any, Any]] = deque()
        """Filled by the client's threads, emptied in the event loop."""
        self._awake = False
        self._unusable: ProducerClosed | ProducerFailed | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._following = self._spawn(self._follow())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def descriptor(self) -> Descriptor:
        """The composite topic as this producer knows it now."""
        return self._core.descriptor

    @property
    def pending(self) -> int:
        """Messages that were let out and are not acknowledged."""
        return self._room.messages

    async def send(
        self, group_id: str, payload: bytes, properties: Mapping[str, str] | None = None
    ) -> Position:
        """Send and wait until the message is stored; says where.

        If the wait is cancelled, the message may be stored or not. If the broker has trimmed it before it
        could say where it was, ledger and entry of the position are -1.
        """
        return await (await self.submit(group_id, payload, properties))

    async def submit(
        self, group_id: str, payload: bytes, properties: Mapping[str, str] | None = None
    ) -> asyncio.Future[Position]:
        """Wait until there is room, and send; the future is done when the message is stored.

        If the wait for room is cancelled, nothing is sent.
        """
        message = self._prepare(group_id, payload, properties)
        if not self._room.take(message.size):
            self._waiting.add(message)
            try:
                await self._room.wait(message.size)
            except BaseException:
                message.future.cancel()  # `flush` may be waiting for it
                raise
            finally:
                self._waiting.discard(message)
        self._let_out(message)
        return message.future

    def send_nowait(
        self, group_id: str, payload: bytes, properties: Mapping[str, str] | None = None
    ) -> asyncio.Future[Position]:
        """`submit` for callers that cannot wait: raises QueueFull if there is no room."""
        message = self._prepare(group_id, payload, properties)
        if not self._room.take(message.size):
            raise QueueFull(
                f"{self._room.messages} messages with {self._room.bytes} bytes are not acknowledged yet: "
                "await `submit` or `send`, or allow more with max_pending_messages and max_pending_bytes"
            )
        self._let_out(message)
        return message.future

    async def flush(self) -> None:
        """Wait until everything that was sent before is stored or has failed."""
        futures: list[asyncio.Future[Any]] = [message.future for message in self._core.unsettled()]
        futures += [message.future for message in self._waiting]
        futures = [future for future in futures if not future.done()]
        if futures:
            await asyncio.wait(futures)

    async def close(self) -> None:
        """Take no more sends, wait for those under way, disconnect.

        If the wait is cancelled (by a time-out around it), what is not stored by then fails with
        ProducerClosed.
        """
        if self._unusable is None:
            self._unusable = ProducerClosed("the producer is closed; open another one")
        try:
            await self.flush()
        finally:
            self._give_up(ProducerClosed("the producer was closed before this was acknowledged"))
            for task in self._tasks:
                task.cancel()
            natives, self._natives = list(self._natives.values()), {}
            # Shielded: a time-out that ends the wait above must not leave connections behind.
            await asyncio.shield(asyncio.ensure_future(self._disconnect(natives)))

    async def _disconnect(self, natives: Iterable[pulsar.Producer]) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._follower.close(), *(close_producer(native) for native in natives))

    # A message's way out

    def _prepare(self, group_id: str, payload: bytes, properties: Mapping[str, str] | None) -> Outgoing:
        if self._unusable is not None:
            raise self._unusable
        return Outgoing(group_id, payload, properties, self._max_message_size, self._loop.create_future())

    def _let_out(self, message: Outgoing) -> None:
        message.sequence = self._sequence
        self._sequence += 1
        effect = self._core.submit(message)
        if type(effect) is Transmit:  # nearly always; the general way costs more
            self._transmit(effect.link, effect.sends)
        elif effect is not None:
            self._carry_out((effect,))

    def _transmit(self, link: Link[Outgoing], messages: Iterable[Outgoing]) -> None:
        # What `pulsar.Producer.send_async` does, without the checks that are done already.
        native = self._natives[link]._producer
        send, filled = native.send_async, self._filled.get(link, 0)
        for message in messages:
            # The broker's limit is for the batch, of which the client counts the payloads only.
            filled += message.size + OVERHEAD
            if filled > self._max_message_size:
                native.flush_async(_ignore)
                filled = message.size + OVERHEAD
            builder = _pulsar.MessageBuilder()
            builder.content(message.payload)
            builder.partition_key(message.group_id)
            builder.property(ID_PROPERTY, f"{self.id}:{message.sequence}")
            if message.properties:
                for name, value in message.properties.items():
                    builder.property(name, value)
            send(builder.build(), partial(self._answered, link, message.sequence))
        self._filled[link] = filled

    # Its way back

    def _answered(self, link: Link[Outgoing], sequence: int, result: Any, message_id: Any) -> None:
        """On the client's thread. An exception here would end the process."""
        self._answers.append((link, sequence, result, message_id))
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._take_answers)
            except RuntimeError:
                LOGGER.debug("the event loop is closed: nobody is left to tell")

    def _take_answers(self) -> None:
        self._awake = False  # first: what is added from now on wakes us again
        answers, core = self._answers, self._core
        while answers:
            link, sequence, result, message_id = answers.popleft()
            if int(result) == OK:
                ledger = message_id.ledger_id()
                if ledger < 0:  # a repetition that the broker has recognised
                    self._carry_out(core.stored(link, sequence))
                    continue
                position = Position(
                    link.storage_topic, ledger, message_id.entry_id(), message_id.batch_index()
                )
                message = core.acknowledged(link, sequence, position)
                if message is not None:
                    self._settle(message, position)
            elif sequence in link.in_flight:
                self._refused(link, sequence, result)
        self._room.let_in()

    def _refused(self, link: Link[Outgoing], sequence: int, result: Any) -> None:
        if int(result) == TERMINATED or link.storage_topic < self._core.descriptor.produce_pointer:
            # Of a link that is being recovered only the closed partition can tell what is stored.
            self._core.terminated(link)
        elif int(result) == TOO_BIG:
            message = self._core.rejected(link, sequence)
            if message is not None:
                self._settle(
                    message, PayloadTooLarge(f"the broker refused a message of {message.size} bytes")
                )
        else:
            self._fail(ProducerFailed(f"{link.topic} refused a send: {result.name}; open another producer"))

    def _settle(self, message: Outgoing, outcome: Position | Exception) -> None:
        self._room.give_back(message.size)
        future = message.future
        if future.done():  # its sender has stopped waiting
            return
        if isinstance(outcome, Position):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    # What the core wants done

    def _carry_out(self, effects: Iterable[Effect[Outgoing]]) -> None:
        for effect in effects:
            match effect:
                case Transmit(link, messages):
                    self._transmit(link, messages)
                case Open(link):
                    self._spawn(self._open_link(link))
                case Recover():
                    self._spawn(self._recover(effect))
                case Locate():
                    self._spawn(self._locate(effect))
                case Complete(message, position):
                    self._settle(message, position)
                case Missing(link):
                    raise ProducerFailed(
                        f"{link.topic}: the broker took sends for repetitions that it does not hold; "
                        "what it refused and what it stored is out of order: open another producer"
                    )
                case Close(link):
                    self._filled.pop(link, None)
                    if (native := self._natives.pop(link, None)) is not None:
                        self._spawn(close_producer(native))

    async def _open_link(self, link: Link[Outgoing]) -> None:
        try:
            native = await open_producer(
                self._client,
                link.topic,
                max_pending_messages=self._max_messages,
                batch_delay=self._batch_delay,
            )
        except TopicTerminated:
            self._core.terminated(link)
            return
        self._natives[link] = native
        self._carry_out(self._core.opened(link))

    async def _recover(self, recover: Recover[Outgoing]) -> None:
        link = recover.link
        found = await find_own(self._reading_client, recover, self.id)
        LOGGER.info(
            "%s is closed; of %d unanswered sends %d are stored there",
            link.topic,
            len(link.in_flight),
            len(found.keys() & link.in_flight.keys()),
        )
        self._carry_out(self._core.recovered(link, found))
        self._room.let_in()

    async def _locate(self, locate: Locate[Outgoing]) -> None:
        link = locate.link
        async with aclosing(own_messages(self._reading_client, locate, self.id)) as pulls:
            async for found in pulls:
                if found.reached is None:
                    effects = self._core.exhausted(link, whole=found.whole)
                else:
                    effects = self._core.located(link, found.positions, found.reached, whole=found.whole)
                self._carry_out(effects)
                self._room.let_in()
                if not link.searching:
                    return

    async def _follow(self) -> None:
        async for descriptor in self._follower.changes():
            if descriptor.generation > self.descriptor.generation and not is_passed_by(descriptor):
                check_writable(descriptor)
                self._carry_out(self._core.advanced(descriptor))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = error if isinstance(error, ProducerFailed) else ProducerFailed(str(error))
            failure.__cause__ = None if failure is error else error
            self._fail(failure)

    def _fail(self, error: ProducerFailed) -> None:
        """No send can be trusted to keep its place any more: end them all, and refuse new ones."""
        LOGGER.error("the producer gives up: %s", error)
        if self._unusable is None:
            self._unusable = error
        self._give_up(error)

    def _give_up(self, error: ProducerFailed | ProducerClosed) -> None:
        for message in self._core.abandon():
            self._settle(message, error)
        self._room.close(error)


def _ignore(_: Any) -> None:
    """Each message has an answer of its own."""
