"""One partition as a shard reads it: an Exclusive durable subscription, built for speed.

**How messages come.** A thread blocks in the client's receive and takes along what the client holds already
(`receiving` says why not otherwise). So the loop is woken once for many messages, and a message never waits
for company.

**After a reconnect** the client sends everything that is not acknowledged again. The shard has those messages
already: they are recognised by their positions and left out; one that was acknowledged before is acknowledged
again, because it came only if that was lost. A broken connection is remembered (`disturbed_at`): nobody may
trust that no other owner was there meanwhile until a heartbeat that was sent later is acknowledged.

**Is the partition drained?** Only the descriptor says where a partition ends. If the cursor stands at the
sealed end already, nothing comes; then it is drained when a connected subscription has been silent for
`SILENCE` and the broker, asked after that, answers promptly. A partition that is not sealed is never drained.
When the end of a sealed topic is reached, the native client (3.13) drops its connection with all that share
it: so a source shares its client with no writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import pulsar

from millrace.core.positions import EMPTY, EntryId, Position
from millrace.pulsar.acknowledgements import Acknowledgements, Entry
from millrace.pulsar.clients import blocking, blocking_whole
from millrace.pulsar.errors import PulsarError, from_client
from millrace.pulsar.fetching import Fetcher, Fields, fields_of
from millrace.pulsar.messageids import has_passed
from millrace.pulsar.receiving import Receiving

LOGGER = logging.getLogger(__name__)

TURN = 256
"""Messages handed over at once, at most: then others have their turn in the event loop."""

LOOK = 0.1
"""Seconds between two looks at the connection, and between two flushes of held back acknowledgements."""

SILENCE = 10.0
"""Seconds of silence after which a sealed partition may be found to be drained."""

PROMPT = 1.0
"""A broker that answers later than this is not prompt: what held that up may have held up messages."""


class Received:
    """A message as a shard holds it. Acknowledge it with its source, once."""

    __slots__ = ("entry", "group", "id", "payload", "position", "properties", "publish_time", "source")

    def __init__(
        self, source: Source, position: Position, message_id: Any, entry: Entry, fields: Fields
    ) -> None:
        self.source = source
        self.position = position
        self.id = message_id
        """The native id."""
        self.entry = entry
        self.group, self.payload, self.properties, self.publish_time = fields


class Source:
    """Messages of one `-partition-N` topic, handed over in batches. Use within one event loop.

    A source begins paused: call `resume`.
    """

    def __init__(
        self,
        client: pulsar.Client,
        topic: str,
        subscription: str,
        take: Callable[[list[Received]], None],
        *,
        storage_topic: int,
        partition: int,
        window: int = 1000,
        reading_client: pulsar.Client | None = None,
    ) -> None:
        """`take` gets new messages, in order, in the event loop; it may pause the source.

        `window` is what the native client reads ahead. `fetch` uses `reading_client`, if there is one.
        """
        self.topic = topic
        self.subscription = subscription
        self.storage_topic = storage_topic
        self.partition = partition
        self.drained = asyncio.Event()
        """Everything up to the sealed end was handed over (not: acknowledged). See `sealed`."""
        self.lost = asyncio.Event()
        """The subscription cannot be read any more; `reason` says why, None after a `close` of our own."""
        self.reason: PulsarError | None = None
        self.disturbed_at = -math.inf
        """Monotonic time at which the connection was last found broken, or messages to be sent again."""
        self._client = client
        self._take = take
        self._window = window
        self._fetcher = Fetcher(reading_client or client, topic)
        self._loop = asyncio.get_running_loop()
        self._native: Any = None
        self._consumer: pulsar.Consumer | None = None
        self._acks = Acknowledgements(self._acknowledge)
        self._paused = True
        self._receiving: Receiving | None = None
        self._asked = False
        self._waiting: list[Any] = []
        """What came while we were paused."""
        self._newest = (-1, -1, -1)
        self._newest_id: Any = None
        self._end: EntryId | None = None
        self._quiet_since = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._probe: asyncio.Task[None] | None = None

    async def open(self, *, latest: bool = False) -> None:
        """Subscribe. Raises Conflict while somebody else holds the subscription.

        A subscription that does not exist begins with the oldest message, or with what comes from now on.
        """
        initial = pulsar.InitialPosition.Latest if latest else pulsar.InitialPosition.Earliest
        try:
            consumer: pulsar.Consumer = await blocking_whole(
                lambda: self._client.subscribe(
                    self.topic,
                    self.subscription,
                    consumer_type=pulsar.ConsumerType.Exclusive,
                    receiver_queue_size=self._window,
                    initial_position=initial,
                    batch_index_ack_enabled=True,
                ),
                pulsar.Consumer.close,
            )
        except pulsar.PulsarException as error:
            raise from_client(error, f"subscribe to {self.topic} as {self.subscription!r}") from error
        self._consumer, self._native = consumer, consumer._consumer
        self._receiving = Receiving(self._native.receive, TURN)
        self._quiet_since = time.monotonic()
        self._looking = self._loop.call_later(LOOK, self._look)

    @property
    def connected(self) -> bool:
        """Whether the subscription is connected now."""
        return self._native is not None and bool(self._native.is_connected())

    @property
    def unacknowledged_entries(self) -> int:
        """Entries of which something was handed over and is not acknowledged."""
        return self._acks.open_entries

    def pause(self) -> None:
        """Hand nothing over until `resume`; the client goes on to read its window ahead."""
        self._paused = True

    def resume(self) -> None:
        """Hand over again."""
        if not self._paused or self.lost.is_set():
            return
        self._paused = False
        self._quiet_since = time.monotonic()  # while nobody listens, silence means nothing
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._loop.call_soon(self._resume_with, waiting)
        else:
            self._ask()

    def _resume_with(self, waiting: list[Any]) -> None:
        if self._paused:  # again, before it came to this
            self._waiting = waiting + self._waiting
        elif not self.lost.is_set():
            self._ask()
            self._hand_over(waiting)

    def ack(self, message: Received) -> None:
        """Acknowledge: the broker gets it soon, with others. A second time does nothing."""
        if not self.lost.is_set():
            self._acks.ack(message.entry, message.position.batch, message.id)

    def sealed(self, end: EntryId) -> None:
        """The partition ends there, says the descriptor: `drained` is set when all of it was handed over."""
        self._end = end
        if end == EMPTY or has_passed(end, self._newest_id):
            self.drained.set()

    async def fetch(self, position: Position) -> Fields | None:
        """Read one message again: its group, payload, properties and time. None if it is no longer there.

        Fetch in order: then many are read at once.
        """
        return await self._fetcher.fetch(position)

    async def close(self) -> None:
        """Send the acknowledgements that were made, and disconnect. The cursor stays in Pulsar."""
        if not self.lost.is_set():
            self._acks.flush(everything=True)
        self._end_with(None)
        consumer, self._consumer = self._consumer, None
        await self._fetcher.close()
        if self._probe is not None:
            await asyncio.wait((self._probe,))
        if consumer is not None:
            with contextlib.suppress(pulsar.PulsarException):  # closed already, with its client
                await blocking(consumer.close)

    # A message's way in

    def _came(self, raws: list[Any], error: pulsar.PulsarException | None) -> None:
        """The client's messages, in order; while we are paused they wait here."""
        self._asked = False
        if self.lost.is_set():
            return
        if error is not None:
            self._end_with(from_client(error, f"read {self.topic}"))
        elif self._paused:
            self._waiting = raws
        else:
            self._ask()  # the thread takes the next ones while these are dealt with
            self._hand_over(raws)

    def _ask(self) -> None:
        if not self._asked and self._receiving is not None:
            self._asked = True
            self._receiving.ask(self._came)

    def _hand_over(self, raws: list[Any]) -> None:
        messages: list[Received] = []
        for raw in raws:
            self._append(messages, raw)
        if not messages:
            return
        self._quiet_since = time.monotonic()
        self._take(messages)
        if self._end is not None and not self.drained.is_set() and has_passed(self._end, self._newest_id):
            self.drained.set()

    def _append(self, messages: list[Received], raw: Any) -> None:
        message_id = raw.message_id()
        ledger, entry_number, index = key = (
            message_id.ledger_id(),
            message_id.entry_id(),
            message_id.batch_index(),
        )
        if key <= self._newest:
            self._sent_again(key, message_id)
            return
        self._newest, self._newest_id = key, message_id
        entry = self._acks.received(ledger, entry_number, index, message_id)
        position = Position(self.storage_topic, ledger, entry_number, index)
        messages.append(Received(self, position, message_id, entry, fields_of(raw)))

    def _sent_again(self, key: tuple[int, int, int], message_id: Any) -> None:
        self.disturbed_at = self._quiet_since = time.monotonic()
        if not self._acks.is_held(*key):
            self._acknowledge(message_id)

    def _acknowledge(self, message_id: Any) -> None:
        self._native.acknowledge_async(message_id, _ignore)

    # From time to time

    def _look(self) -> None:
        now = time.monotonic()
        if not self._native.is_connected():
            self.disturbed_at = self._quiet_since = now
        if self._acks.due:
            self._acks.flush()
        waits = self._end is not None and not self.drained.is_set() and not self._paused
        if waits and now - self._quiet_since >= SILENCE and (self._probe is None or self._probe.done()):
            self._probe = self._loop.create_task(self._find_out(self._quiet_since))
        self._looking = self._loop.call_later(LOOK, self._look)

    async def _find_out(self, quiet_since: float) -> None:
        """Whether there is nothing left of a sealed partition that has long been silent."""
        asked = time.monotonic()
        try:
            await blocking(self._native.get_last_message_id)
        except pulsar.PulsarException:
            self._quiet_since = time.monotonic()
            return
        if time.monotonic() - asked > PROMPT:
            self._quiet_since = time.monotonic()
        elif self._quiet_since == quiet_since and not self._paused and not self.lost.is_set():
            LOGGER.info("%s: %r has nothing left up to %s", self.topic, self.subscription, self._end)
            self.drained.set()

    def _end_with(self, reason: PulsarError | None) -> None:
        if self.lost.is_set():
            return
        self.reason = reason
        if reason is not None:
            LOGGER.warning("%s", reason)
        if self._looking is not None:
            self._looking.cancel()
        self._waiting = []
        if self._receiving is not None:
            self._receiving.close()
        self.lost.set()


def _ignore(_: Any) -> None:
    """An acknowledgement that fails is made again when its message comes again."""
