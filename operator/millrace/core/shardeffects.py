"""The words of a shard: what it holds in hand, and what it wants done. What decides is in `shards`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from millrace.core.groupstate import HEALTHY, GroupState, Queue
from millrace.core.positions import Position

M = TypeVar("M")


class Item(Generic[M]):
    """One message in hand, of the main topic or a parked copy. Compared by identity."""

    __slots__ = (
        "attempts", "due", "error", "first_failed", "group", "lives_in", "main", "message", "parked",
        "settled", "source",
    )  # fmt: skip

    def __init__(
        self,
        group: str,
        main: Position,
        message: M | None,
        source: object,
        *,
        parked: Position | None = None,
        attempts: int = 0,
        first_failed: float | None = None,
        error: str = "",
    ) -> None:
        self.group = group
        self.main = main
        """Where it is in the main topic."""
        self.message = message
        """What to deliver; None for a parked copy that is not held and has to be fetched."""
        self.source = source
        """Whatever the shell needs to acknowledge it."""
        self.parked = parked
        """Where the copy is in the retry queue; None for a message of the main topic."""
        self.attempts = attempts
        self.first_failed = first_failed
        self.error = error
        self.due = 0.0
        self.settled = False
        """For the shell: acknowledged, as far as the core is concerned."""
        self.lives_in: Group[M] | None = None

    def __repr__(self) -> str:
        return f"Item({self.group} {self.main}{'' if self.parked is None else f' parked at {self.parked}'})"


class Lane(Enum):
    """Which of a group's two lanes an answer belongs to."""

    DELIVERY = "delivery"
    PARKING = "parking"


class Step(Enum):
    """How far a lane is."""

    IDLE = "idle"
    READY = "waiting for a permit"
    FETCHING = "fetching"
    DELIVERING = "delivering"
    CONSUMED = "persisting c after a delivery"
    INTENT = "persisting p"
    PRODUCING = "producing the copy"
    MOVED = "persisting c after a move"


class Group(Generic[M]):
    """What is in hand of one group. Exists only as long as there is something to remember."""

    __slots__ = (
        "id", "item", "main", "not_before", "parking", "retry", "state", "step", "target", "timed", "writing"
    )  # fmt: skip

    def __init__(self, name: str, state: GroupState = HEALTHY) -> None:
        self.id = name
        self.state = state
        self.main: deque[Item[M]] = deque()
        self.retry: deque[Item[M]] = deque()
        self.item: Item[M] | None = None
        self.step = Step.IDLE
        self.parking: deque[Item[M]] = deque()
        self.writing = Step.IDLE
        """The step of the parking lane."""
        self.target = Queue.RETRY
        """Where the parking lane leads."""
        self.not_before = 0.0
        self.timed: Item[M] | None = None
        """The copy for which a timer is set."""


@dataclass(frozen=True, slots=True)
class Deliver(Generic[M]):
    """Send it, and report `delivered`, `failed` or `refused`."""

    item: Item[M]


@dataclass(frozen=True, slots=True)
class Persist(Generic[M]):
    """Write the group's record to the state table, and report `persisted`. Writes of a group keep their
    order.
    """

    group: Group[M]
    lane: Lane
    state: GroupState


@dataclass(frozen=True, slots=True)
class Park(Generic[M]):
    """Produce the copy, and report `produced`."""

    queue: Queue
    item: Item[M]
    lane: Lane


@dataclass(frozen=True, slots=True)
class Ack(Generic[M]):
    """Acknowledge the message where it came from. If that gets lost, it comes again and is recognised."""

    item: Item[M]


@dataclass(frozen=True, slots=True)
class Fetch(Generic[M]):
    """Read the payload of this parked copy again, and report `fetched`."""

    item: Item[M]


Effect = Deliver[M] | Persist[M] | Park[M] | Ack[M] | Fetch[M]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the subscription's spec says about failures."""

    max_attempts: int = 10
    """Deliveries of one message in all before it is a dead letter."""
    block_on_dead_letter: bool = True
    ordered: bool = True
    delay: Callable[[int], float] = lambda _: 1.0
    """Seconds to wait after so many attempts; jitter included."""


class Way(Enum):
    """Where a message of the main topic goes."""

    DROP = "drop"
    DELIVER = "deliver"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
