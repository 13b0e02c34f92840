"""The single writer of one topic: what it sends is stored in the order of the calls, or it is over.

Two things would break the order silently, so neither can happen here. The native client refuses a message
when its queue is full and accepts a later one: so its queue is larger than what is let out. And a send that
timed out may be stored or not while the next one is: so sends never time out there. The client reconnects and
repeats, in order, for as long as it takes; whoever must not wait so long looks at the last answer's time.

Whatever else goes wrong ends the writer: `lost` is set, `reason` says why, nothing more is sent and nobody is
called back any more. The way on is a new writer, and reading again what is stored.

Callbacks come one a message on the client's thread; they are gathered, and the event loop is woken once for
all that have gathered.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import _pulsar
import pulsar

from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Fenced, PulsarError, Rejected, TopicTerminated, Unavailable, from_client
from millrace.pulsar.tables import open_fenced_producer

LOGGER = logging.getLogger(__name__)

MAX_PENDING = 10_000
"""Messages that the native client may hold unanswered; what is beyond waits here, in order."""

BATCH_DELAY_MS = 2
"""How long a message may wait for company."""

ANSWER_SECONDS = 10.0
"""How long one record may take where somebody waits for it."""

# As numbers: comparing the client's own result objects takes a microsecond a message.
OK = int(_pulsar.Result.Ok)
TOO_BIG = int(_pulsar.Result.MessageTooBig)
_FENCING = {int(_pulsar.Result.ProducerFenced), int(_pulsar.Result.AlreadyClosed)}
_TERMINATED = int(_pulsar.Result.TopicTerminated)

Stored = Callable[[Any], None]
"""Called with the native id of the stored message; with None if it was refused for its size alone."""


class FencedWriter:
    """Sends to one topic over a producer of `open_writer_producer`.

    Use within the event loop that made it.
    """

    def __init__(self, topic: str, producer: pulsar.Producer) -> None:
        self.topic = topic
        self.lost = asyncio.Event()
        """Set when the writer is over, whatever the reason; it stays set."""
        self.reason: PulsarError | None = None
        """Why it is over; None after a `close` of our own."""
        self._loop = asyncio.get_running_loop()
        self._producer = producer
        self._send = producer._producer.send_async
        self._pending = 0
        self._waiting: deque[tuple[Any, Stored]] = deque()
        """Messages beyond what the native client may hold, in the order of their calls."""
        self._answers: deque[tuple[Stored, Any, Any]] = deque()
        """Filled by the client's threads, emptied in the event loop."""
        self._awake = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pending(self) -> int:
        """Messages that are not answered yet."""
        return self._pending + len(self._waiting)

    def send(self, message: Any, stored: Stored) -> None:
        """Send a message of `_pulsar.MessageBuilder`; `stored` is called, once it is, in the event loop."""
        if self.lost.is_set():
            return  # whoever sends finds out by `lost`; nothing may follow what failed
        if self._pending < MAX_PENDING and not self._waiting:
            self._let_out(message, stored)
        else:
            self._waiting.append((message, stored))

    async def drain(self) -> None:
        """Wait until everything that was sent is stored, or the writer is lost."""
        await self._idle.wait()

    async def close(self) -> None:
        """Disconnect. Whatever is unanswered may be stored or not, and nobody is called back."""
        self._end(None)
        with contextlib.suppress(pulsar.PulsarException):  # a fenced producer is closed already
            await blocking(self._producer.close)

    def _let_out(self, message: Any, stored: Stored) -> None:
        self._pending += 1
        self._idle.clear()
        self._send(message, partial(self._answered, stored))

    def _answered(self, stored: Stored, result: Any, message_id: Any) -> None:
        """On the client's thread. An exception here would end the process."""
        self._answers.append((stored, result, message_id))
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._take_answers)
            except RuntimeError:
                LOGGER.debug("the event loop is closed: nobody is left to tell")

    def _take_answers(self) -> None:
        self._awake = False  # first: what is added from now on wakes us again
        answers = self._answers
        while answers and not self.lost.is_set():
            stored, result, message_id = answers.popleft()
            self._pending -= 1
            if int(result) == OK:
                stored(message_id)
            elif int(result) == TOO_BIG:
                stored(None)
            else:
                self._end(self._failure(result))
        while self._waiting and self._pending < MAX_PENDING and not self.lost.is_set():
            self._let_out(*self._waiting.popleft())
        if not self._pending:
            self._idle.set()

    def _failure(self, result: Any) -> PulsarError:
        code = int(result)
        attempt = f"cannot write to {self.topic}: {result.name}"
        if code in _FENCING:
            return Fenced(f"{attempt}; a newer writer took over: look at the claim before trying again")
        if code == _TERMINATED:
            return TopicTerminated(f"{attempt}; the topic is sealed")
        return Unavailable(f"{attempt}; open another writer and read again what is stored")

    def fail(self, reason: PulsarError) -> None:
        """End the writer for a reason that only its user can see."""
        self._end(reason)

    def _end(self, reason: PulsarError | None) -> None:
        if self.lost.is_set():
            return
        self.reason = reason
        if reason is not None:
            LOGGER.warning("%s", reason)
        self._waiting.clear()
        self._answers.clear()
        self.lost.set()
        self._idle.set()


def open_writer_producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    """The producer of a FencedWriter: whoever wrote before is evicted. Blocks."""
    return open_fenced_producer(
        client,
        topic,
        send_timeout=0,
        block_if_queue_full=False,
        max_pending_messages=MAX_PENDING + 1,  # never full: our own permits are fewer
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=BATCH_DELAY_MS,
    )


def send_and_wait(producer: pulsar.Producer, topic: str, key: str, value: bytes) -> Any:
    """Send one record and wait for its id, but not for ever: the producer itself never gives up. Blocks."""
    answer: concurrent.futures.Future[tuple[Any, Any]] = concurrent.futures.Future()
    producer._producer.send_async(
        message_of(key, value), lambda result, message_id: answer.set_result((result, message_id))
    )
    try:
        result, message_id = answer.result(ANSWER_SECONDS)
    except TimeoutError:
        raise Unavailable(
            f"cannot write to {topic}: no answer within {ANSWER_SECONDS:.0f} s; it will be tried again"
        ) from None
    if int(result) != OK:
        raised = getattr(pulsar, result.name, pulsar.PulsarException)
        raise from_client(raised(result.name), f"write to {topic}")
    return message_id


def message_of(key: str, value: bytes | None, properties: dict[str, str] | None = None) -> Any:
    """A native message; no value is a tombstone."""
    builder = _pulsar.MessageBuilder()
    if value is None:
        builder.set_null_value()
    else:
        builder.content(value)
    builder.partition_key(key)
    if properties:
        for name, text in properties.items():
            builder.property(name, text)
    return builder.build()


def too_large(topic: str, key: str) -> Rejected:
    """The error for a message that no broker of this configuration takes."""
    return Rejected(f"{topic} refuses the record of {key[:64]!r}: it is larger than maxMessageSize")
