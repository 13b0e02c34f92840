"""Forgetting groups that have recovered: when their records may leave the state table.

A record tells what comes again from what is new. It may go only when nothing of what it speaks of can come
again: when the acknowledgements of the main topic, and those of the retry queue, are complete up to the
group's last copy, *and on disk*. The broker writes cursors to disk at least once a minute, and tells nobody.
So a group has to be found settled in `ROUNDS` looks in a row, over three minutes, with no connection broken
in between (a broken one may have lost acknowledgements).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace.core.groupstate import GroupState
from millrace.core.positions import Position

LOOK_SECONDS = 60.0
ROUNDS = 4


class Progress:
    """How far one partition is acknowledged without a gap, as far as this owner knows."""

    __slots__ = ("_open", "acked")

    def __init__(self) -> None:
        self._open: deque[list[Position | bool]] = deque()
        self.acked: Position | None = None
        """Everything of the partition up to here is acknowledged; None: nothing is known."""

    def received(self, position: Position) -> list[Position | bool]:
        """In the order of the partition; hand the result to `settled`."""
        entry: list[Position | bool] = [position, False]
        self._open.append(entry)
        return entry

    def settled(self, entry: list[Position | bool]) -> None:
        """It was acknowledged."""
        entry[1] = True
        while self._open and self._open[0][1]:
            position = self._open.popleft()[0]
            assert isinstance(position, Position)
            self.acked = position


def is_settled(
    state: GroupState, main_acked: Callable[[Position], bool], retry_acked: Callable[[Position], bool]
) -> bool:
    """Whether nothing that the record speaks of can come again, going by the acknowledgements made so far."""
    if state.retry.has_lag or state.dead_letter.p is not None:
        # A dead letter stays on record until it is replayed: it is what blocks its group, or is skipped once.
        return False
    last = state.retry.p
    return (
        last is not None
        and last.internal is not None
        and main_acked(last.main)
        and retry_acked(last.internal)
    )


class Forgetting:
    """Which groups were found settled, look after look."""

    def __init__(self) -> None:
        self._before: deque[set[str]] = deque(maxlen=ROUNDS - 1)

    def looked(self, settled: set[str], *, disturbed: bool) -> set[str]:
        """The groups that may be forgotten now."""
        if disturbed:
            self._before.clear()
        complete = len(self._before) == ROUNDS - 1
        ripe = settled.intersection(*self._before) if complete else set()
        self._before.append(settled - ripe)
        return ripe
