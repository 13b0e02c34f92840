"""One partition as a shard works on it: what is in hand of it, and how far it is acknowledged with no gap."""

from __future__ import annotations

from collections import deque

from millrace.consuming.forgetting import Progress
from millrace.consuming.settings import Parcel
from millrace.core.positions import Position
from millrace.pulsar.sources import Source


class MainLane:
    """One partition of the main topic: what of it is not acknowledged, in order."""

    __slots__ = ("acked", "order", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.order: deque[Parcel] = deque()
        self.acked: Position | None = None
        """Everything up to here is acknowledged; None: nothing was, by this owner."""


class RetryLane:
    """One partition of the retry queue."""

    __slots__ = ("entries", "progress", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.progress = Progress()
        self.entries: dict[Position, list[Position | bool]] = {}
