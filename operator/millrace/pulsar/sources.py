"""One partition as a shard reads it: an Exclusive durable subscription, built for speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pulsar

from millrace.core.positions import EntryId, Position


class Received:
    """One message of a source. `acked` by its source only."""

    __slots__ = ("group", "id", "partition", "payload", "position", "properties", "publish_time", "source")

    group: str
    payload: bytes
    properties: Mapping[str, str]
    """All of them, with the producer's own id under `mr`."""
    position: Position
    partition: int
    publish_time: int
    """Milliseconds since the epoch, by the producer's clock."""
    id: Any
    """The native id, which alone can be acknowledged."""
    source: Source


class Source:
    """Messages of one `-partition-N` topic, handed over in batches. Use within the event loop that made it."""

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
    ) -> None:
        """`take` gets messages in order, at most `window` at once, in the event loop, unless paused."""
        self.topic = topic
        self.drained = asyncio.Event()
        """Everything up to the sealed end was handed over (see `sealed`): not that it was acknowledged."""
        self.lost = asyncio.Event()
        """The subscription cannot be read any more (`reason`): close it."""
        self.reason: Exception | None = None
        self.disconnected_at: float | None = None
        """Monotonic time at which the connection was last seen to be broken."""

    async def open(self, *, latest: bool = False) -> None:
        """Subscribe, paused. Raises Conflict while somebody else holds the subscription."""
        raise NotImplementedError

    def pause(self) -> None:
        """Hand nothing over until `resume`. What the client reads ahead is bounded by the window."""
        raise NotImplementedError

    def resume(self) -> None:
        """Hand over again."""
        raise NotImplementedError

    def ack(self, message: Received) -> None:
        """Acknowledge: it is sent to the broker soon, with others."""
        raise NotImplementedError

    def sealed(self, end: EntryId) -> None:
        """The partition ends there, says the descriptor: `drained` is set when it is reached."""
        raise NotImplementedError

    async def fetch(self, position: Position) -> Received | None:
        """Read one message again; None if it is no longer there."""
        raise NotImplementedError

    async def close(self) -> None:
        """Send the acknowledgements that were made, and unsubscribe nothing: the cursor stays."""
        raise NotImplementedError
