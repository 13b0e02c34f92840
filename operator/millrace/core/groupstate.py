"""The state of a group in a subscription: what was parked of it in the retry and dead-letter queues, and what
was consumed from there.

`p` is the newest message that is parked, or is about to be (the intent is written before the copy); `c` the
newest one that was consumed from the queue. Both only grow. `p > c` means that the group has *lag* in that
queue: something of it is there that has to come first. A healthy group has no state at all.

Copies are produced in chains: one intent for several messages, and the next chain only when every copy of
the one before is stored. `first` is where the newest chain began. So a message before `first` was dealt with,
whatever became of its acknowledgement; one between `first` and `p` may have no copy yet.

Positions are those of the main topic: within a group they say which message came first, whatever queue it
went through. Where the copy is in the queue itself is noted beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum

from millrace.core.errors import DomainError
from millrace.core.positions import Position

FORMAT_VERSION = 1


class Queue(StrEnum):
    """Where messages are parked."""

    RETRY = "rq"
    DEAD_LETTER = "dlq"


class GroupStateError(DomainError):
    """A record of the state table cannot be read."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One message: where it is in the main topic, and where its copy is (None: not known to be there)."""

    main: Position
    internal: Position | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """One group in one queue."""

    p: Mark | None = None
    c: Mark | None = None
    first: Position | None = None

    @property
    def has_lag(self) -> bool:
        """Whether something of the group is parked here and not consumed."""
        return self.p is not None and (self.c is None or self.p.main > self.c.main)

    def has_parked(self, main: Position) -> bool:
        """Whether this message, or a newer one, is parked or about to be."""
        return self.p is not None and main <= self.p.main

    def has_dealt_with(self, main: Position) -> bool:
        """Whether this message of the main topic needs nothing more: consumed, or before the newest chain."""
        return self.has_consumed(main) or (self.first is not None and main < self.first)

    def has_consumed(self, main: Position) -> bool:
        """Whether this message, or a newer one, was consumed from the queue."""
        return self.c is not None and main <= self.c.main

    def intends(self, first: Position, last: Position) -> QueueState:
        """A chain from `first` to `last` begins."""
        p = self.p if self.p is not None and last <= self.p.main else Mark(last)
        return replace(self, p=p, first=first if self.first is None else max(first, self.first))

    def parked(self, main: Position, internal: Position) -> QueueState:
        """A copy is known to be there."""
        if self.p is None or main >= self.p.main:
            return replace(self, p=Mark(main, internal))
        return self

    def consumed(self, main: Position, internal: Position | None = None) -> QueueState:
        """With `c` at least there."""
        if self.c is None or main > self.c.main:
            return replace(self, c=Mark(main, internal))
        return self


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group in both queues: one record of the state table."""

    retry: QueueState = QueueState()
    dead_letter: QueueState = QueueState()

    def of(self, queue: Queue) -> QueueState:
        """The group in one queue."""
        return self.retry if queue is Queue.RETRY else self.dead_letter

    def intends(self, queue: Queue, first: Position, last: Position) -> GroupState:
        """A chain of copies to the queue begins."""
        state = self.of(queue).intends(first, last)
        return replace(self, retry=state) if queue is Queue.RETRY else replace(self, dead_letter=state)

    def parked(self, queue: Queue, main: Position, internal: Position) -> GroupState:
        """A copy is known to be in the queue."""
        state = self.of(queue).parked(main, internal)
        return replace(self, retry=state) if queue is Queue.RETRY else replace(self, dead_letter=state)

    def consumed(self, queue: Queue, main: Position, internal: Position | None = None) -> GroupState:
        """With the queue's `c` at least there."""
        state = self.of(queue).consumed(main, internal)
        return replace(self, retry=state) if queue is Queue.RETRY else replace(self, dead_letter=state)

    def to_json(self) -> bytes:
        """Serialise."""
        document = {"v": FORMAT_VERSION, "rq": _written(self.retry), "dlq": _written(self.dead_letter)}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> GroupState:
        """Read it; fields that are not known are ignored."""
        try:
            document = json.loads(data)
            if document["v"] > FORMAT_VERSION:
                raise GroupStateError(
                    f"a group's state has format version {document['v']}, and this program reads "
                    f"{FORMAT_VERSION}: upgrade it"
                )
            return cls(_read(document["rq"]), _read(document["dlq"]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise GroupStateError(f"this is no group's state: {data[:80]!r} ({error})") from None


HEALTHY = GroupState()


def _written(state: QueueState) -> list[list[int] | None]:
    marks = [(None, None) if mark is None else (mark.main, mark.internal) for mark in (state.p, state.c)]
    return [
        None if each is None else [each.storage_topic, each.ledger, each.entry, each.batch]
        for each in (*marks[0], *marks[1], state.first)
    ]


def _read(numbers: list[list[int] | None]) -> QueueState:
    p, p_internal, c, c_internal, first = (None if each is None else Position(*each) for each in numbers[:5])
    return QueueState(
        None if p is None else Mark(p, p_internal), None if c is None else Mark(c, c_internal), first
    )
