"""When each key is to be worked on: the rules of the work queue, with no clock and no tasks of their own.

What holds of every schedule (`tests/unit/controller/test_schedules.py`):
- a key is never worked on twice at once;
- what is added while its key is worked on is not lost: the key is due again at once when that work ends;
- a key that is added many times before its turn comes is worked on once;
- failures of one key delay that key alone, further each time, up to a ceiling; a success forgets them;
- news about a key do not wait for its backoff (the news may be the repair), but do not erase its failures
  either.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays after the 1st, 2nd, ... failure in a row: doubling, each shortened by up to `spread` at random.

    The spread keeps many objects that failed together (Pulsar was down) from coming back together.
    """

    first: float = 0.5
    ceiling: float = 120.0
    spread: float = 0.3

    def delay(self, failures: int, chance: float) -> float:
        """The delay after so many failures in a row; `chance` is a random number in [0, 1)."""
        # The exponent is capped for the sake of floats only: 2**64 is far above any ceiling.
        full = min(self.ceiling, self.first * 2.0 ** min(failures - 1, 64))
        return full * (1 - self.spread * chance)


class Schedule(Generic[K]):
    """Keys with the time at which each is due."""

    def __init__(self, backoff: Backoff, chance: Callable[[], float]) -> None:
        self._backoff = backoff
        self._chance = chance
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._due or key in self._active

    @property
    def active(self) -> int:
        """How many keys are being worked on."""
        return len(self._active)

    def depth(self, now: float) -> int:
        """How many keys wait for a worker: due, and not yet taken."""
        return sum(1 for key, due in self._due.items() if due <= now and key not in self._active)

    def failures(self, key: K) -> int:
        """How many times in a row the key's work has failed."""
        return self._failures.get(key, 0)

    def add(self, key: K, due: float) -> None:
        """Have the key worked on at `due`, or earlier if it was due earlier anyway."""
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._sequence += 1
            heapq.heappush(self._heap, (due, self._sequence, key))

    def take(self, now: float) -> tuple[K, float] | None:
        """The key that has been due longest, and since when; it is active until `done`."""
        held: list[tuple[float, int, K]] = []
        taken: tuple[K, float] | None = None
        while self._heap and self._heap[0][0] <= now:
            item = heapq.heappop(self._heap)
            due, _, key = item
            if self._due.get(key) != due:
                continue  # it was taken, dropped, or moved to an earlier time since
            if key in self._active:
                held.append(item)
                continue
            del self._due[key]
            self._active.add(key)
            taken = key, due
            break
        for item in held:
            heapq.heappush(self._heap, item)
        return taken

    def next_due(self) -> float | None:
        """When to look again: the earliest time at which a key that is not active is due."""
        return min((due for key, due in self._due.items() if key not in self._active), default=None)

    def succeeded(self, key: K, now: float, *, again_after: float | None = None) -> None:
        """The work is done; look at the key again after a while, if asked."""
        self._active.discard(key)
        self._failures.pop(key, None)
        if again_after is not None:
            self.add(key, now + again_after)

    def failed(self, key: K, now: float, *, at_least: float = 0.0) -> float:
        """The work failed: try again after the backoff (or what the other side asked for). Returns the
        delay.
        """
        self._active.discard(key)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(at_least, self._backoff.delay(count, self._chance()))
        self.add(key, now + delay)
        return delay

    def forget(self, key: K) -> None:
        """The key's object is gone: nothing is due any more."""
        self._due.pop(key, None)
        self._failures.pop(key, None)
