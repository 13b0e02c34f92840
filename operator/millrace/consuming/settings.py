"""What a shard has to know of its subscription, whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millrace.core.backoff import Backoff
from millrace.core.outcomes import Outcome
from millrace.core.shardeffects import Item
from millrace.pulsar.sources import Received

Parcel = Item[Received]
Answered = Callable[[Parcel, Outcome], None]


class Deliverer(Protocol):
    """Takes messages to where they are consumed."""

    def deliver(self, parcel: Parcel, answered: Answered) -> None:
        """Begin; `answered` is called once, later, in the event loop."""

    async def close(self, seconds: float) -> None:
        """Let what is under way end within so many seconds; then end it."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Everything of a subscription in Pulsar."""

    subscription: str
    """The name of the cursors."""
    main: str
    """The main topic's descriptor topic; likewise the next two."""
    retry: str
    dead_letter: str
    state: str
    """The state table of this shard."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks of ownership, in seconds."""

    heartbeat: float = 1.0
    deliver_within: float = 5.0
    """D: a delivery begins only this soon after the last acknowledged heartbeat."""
    request: float = 30.0
    """How long a delivery may take: a successor waits that long, and D, before its first one."""
    drain: float = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One shard of one subscription."""

    topics: Topics
    shard: int
    shard_count: int
    ordered: bool = True
    block_on_dead_letter: bool = True
    max_attempts: int = 16
    backoff: Backoff = field(default_factory=Backoff)
    max_in_flight: int = 64
    max_per_second: float | None = None
    error_rate_threshold: float = 0.5
    wants: Callable[[Mapping[str, str]], bool] = lambda _: True
    """The filter, of a message's properties. What is not wanted is acknowledged and counted."""
    timing: Timing = field(default_factory=Timing)
    window: int = 4000
    """Messages of the main topic in hand at most."""
    held_bytes: int = 64 * 1024 * 1024
    """Payload of parked copies that is kept in memory; of what is beyond only the position is."""
