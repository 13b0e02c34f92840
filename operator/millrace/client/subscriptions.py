"""Read one partition under a durable subscription: the cursor in Pulsar remembers what was acknowledged.

The client sends everything that is not acknowledged again after it reconnects. The application has those
messages already, so they are recognised by their positions and left out; one that was acknowledged before is
acknowledged again, because it came only if that was lost. So within the life of one consumer nothing is
delivered twice, and what an application still works on may be acknowledged after a reconnect.

**Is the partition drained?** What the descriptor says is compared with the ids of what was read, as
everywhere. But the cursor may stand at the sealed end already when we subscribe: then nothing comes, and the
client cannot tell where the cursor is. A partition that is *not* sealed is never drained. Of one that is,
nothing new can come: it is drained when a connected subscription has been silent for `SILENCE` and the
broker, asked after that, answers promptly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import _pulsar
import pulsar

from millrace.client.errors import InvalidMessage
from millrace.client.partitions import PULL, SILENCE, Message, PartitionReader
from millrace.core.positions import EntryId, Position
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import from_client
from millrace.pulsar.receiving import Receiving

LOGGER = logging.getLogger(__name__)

PROBE = 1.0
"""Seconds between two looks at a silent subscription; a broker that answers later than this is not prompt."""


class _AsReader:
    """A native consumer with the calls of a native reader, so that both are closed in the same way."""

    def __init__(self, native: pulsar.Consumer) -> None:
        self.native = native

    def is_connected(self) -> bool:
        return bool(self.native._consumer.is_connected())

    def close(self) -> None:
        self.native.close()


class PartitionSubscription(PartitionReader):
    """Pulls messages of one partition, and acknowledges them. Nobody else may hold the subscription."""

    def __init__(
        self, client: pulsar.Client, topic: str, storage_topic: int, partition: int, name: str
    ) -> None:
        super().__init__(client, topic, storage_topic, partition, None)
        self._name = name
        self._as_reader: _AsReader | None = None
        self._newest: Position | None = None
        self._newest_id: Any = None
        self._unacknowledged: dict[Position, Any] = {}
        """The ids as the client gave them: only they know which batch they belong to."""
        self._settled = asyncio.Event()
        self._settled.set()
        self._quiet_since = 0.0

    async def open(self, *, latest: bool = False) -> None:
        """Subscribe. A new subscription begins with the oldest message, or with what comes from now on."""
        initial = pulsar.InitialPosition.Latest if latest else pulsar.InitialPosition.Earliest
        try:
            native = await blocking(
                self._client.subscribe,
                self.topic,
                self._name,
                consumer_type=pulsar.ConsumerType.Exclusive,
                receiver_queue_size=PULL,
                initial_position=initial,
                batch_index_ack_enabled=True,
            )
        except pulsar.PulsarException as error:
            raise from_client(error, f"subscribe to {self.topic} as {self._name!r}") from error
        self._as_reader = self._reader = _AsReader(native)
        self._receiving = Receiving(native._consumer.receive, PULL)
        self._quiet_since = asyncio.get_running_loop().time()
        self._next = self._read_next()

    async def ack(self, position: Position) -> None:
        """Acknowledge one message; done when the client has taken the acknowledgement over."""
        message_id = self._unacknowledged.get(position)
        if message_id is None or self._as_reader is None:
            raise InvalidMessage(
                f"{self.topic}: message {position} does not wait for an acknowledgement: it was acknowledged "
                "before, or another consumer delivered it"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(result: Any) -> None:
            if result == _pulsar.Result.Ok:
                self._acknowledged(position)
                if not future.done():
                    future.set_result(None)
            elif not future.done():
                error = pulsar.PulsarException(str(result))
                future.set_exception(from_client(error, f"acknowledge {position} of {self.topic}"))

        def answered(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(settle, result)

        self._as_reader.native._consumer.acknowledge_async(message_id, answered)
        await future

    async def finish(self) -> None:
        """Wait until everything that was pulled is acknowledged, see to it that the broker knows, and close.

        Acknowledgements that were on their way when a connection broke are lost without a word. So at the end
        they are sent once more, as one, over a connection that lives.
        """
        await self._settled.wait()
        if self._as_reader is not None and self._newest_id is not None:
            while not self._as_reader.is_connected():  # noqa: ASYNC110 - the client tells nobody
                await asyncio.sleep(PROBE / 10)
            with contextlib.suppress(pulsar.PulsarException):  # then some may be delivered again
                await blocking(self._as_reader.native.acknowledge_cumulative, self._newest_id)
        await self.close()

    async def pull_to(self, end: EntryId) -> list[Message] | None:
        """The next messages of a sealed partition; None when there are no more."""
        loop = asyncio.get_running_loop()
        while not self.has_passed(end):
            try:
                async with asyncio.timeout(PROBE):
                    return await self.pull()
            except TimeoutError:
                if self._as_reader is None or not self._as_reader.is_connected():
                    self._quiet_since = loop.time()
                elif loop.time() - self._quiet_since >= SILENCE and await self.is_silent():
                    LOGGER.info("%s: %r has nothing left up to %s", self.topic, self._name, end)
                    return None
        return None

    async def is_silent(self) -> bool:
        """Whether the broker answers promptly and has sent nothing. Ask only after some silence."""
        assert self._as_reader is not None, "open it first"
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            await blocking(self._as_reader.native.get_last_message_id)
        except pulsar.PulsarException:
            self._quiet_since = loop.time()
            return False
        if loop.time() - asked > PROBE:
            self._quiet_since = loop.time()  # whatever held the answer up may have held up messages as well
            return False
        return self._next is None or not self._next.done()

    def _take(self, raw: Any) -> Message | None:
        self._quiet_since = asyncio.get_running_loop().time()
        message_id = raw.message_id()
        position = Position(
            self.storage_topic, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
        )
        if self._newest is not None and position <= self._newest:
            if position not in self._unacknowledged and self._as_reader is not None:
                self._as_reader.native._consumer.acknowledge_async(message_id, lambda _: None)
            return None
        self._newest, self._newest_id = position, message_id
        self._unacknowledged[position] = message_id
        self._settled.clear()
        return super()._take(raw)

    def _acknowledged(self, position: Position) -> None:
        self._unacknowledged.pop(position, None)
        if not self._unacknowledged:
            self._settled.set()
