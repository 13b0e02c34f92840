"""The work queue: a bounded number of workers over one `Schedule`.

All knowledge of when is in the schedule; here are only the tasks, the clock and the measurements. A
worker's outcome is a value or a `Retry`; any other exception is a bug, which is logged in full and retried
like a failure, because one broken object must never stop the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from millrace.controller.schedules import Backoff, Schedule

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class Done:
    """The work succeeded; `again_after` seconds from now it is wanted again without news (a resync), if
    set.
    """

    again_after: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The work could not be finished for a reason that may pass. `at_least` is what the other side asked
    for.
    """

    reason: str
    at_least: float = 0.0


Outcome = Done | Retry


class Measurements(Protocol[K_contra]):
    """What the queue tells about itself."""

    def waited(self, key: K_contra, seconds: float) -> None:
        """A key was taken so long after it fell due."""

    def worked(self, key: K_contra, seconds: float, outcome: str) -> None:
        """A worker finished with `done`, `retry` or `error`."""


class WorkQueue(Generic[K]):
    """Keys in, at most `workers` of them worked on at once, each key by one worker at a time."""

    def __init__(
        self,
        work: Callable[[K], Awaitable[Outcome]],
        measurements: Measurements[K],
        *,
        workers: int = 8,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._work = work
        self._measurements = measurements
        self._workers = workers
        self._clock = clock
        self._schedule: Schedule[K] = Schedule(backoff or Backoff(), chance)
        self._news = asyncio.Event()

    def add(self, key: K, *, after: float = 0.0) -> None:
        """Have the key worked on, now or after so many seconds."""
        self._schedule.add(key, self._clock() + after)
        self._news.set()

    def forget(self, key: K) -> None:
        """The key's object is gone."""
        self._schedule.forget(key)

    def depth(self) -> int:
        """How many keys wait for a worker."""
        return self._schedule.depth(self._clock())

    @property
    def active(self) -> int:
        """How many keys are being worked on."""
        return self._schedule.active

    async def run(self) -> None:
        """Work until cancelled; then the workers are cancelled too, wherever they are (every step can be
        repeated).
        """
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._worker(), name=f"worker {number}")

    async def _worker(self) -> None:
        while True:
            key, waited = await self._take()
            self._measurements.waited(key, waited)
            started = self._clock()
            try:
                outcome = await self._work(key)
            except Exception:
                delay = self._schedule.failed(key, self._clock())
                logger.exception(
                    "reconciling %s failed with an error that is not known; again in %.1f s", key, delay
                )
                label = "error"
            else:
                label = self._record(key, outcome)
            self._measurements.worked(key, self._clock() - started, label)
            # The key may be due again, or another worker may have slept because this one held it.
            self._news.set()

    def _record(self, key: K, outcome: Outcome) -> str:
        match outcome:
            case Done(again_after):
                self._schedule.succeeded(key, self._clock(), again_after=again_after)
                return "done"
            case Retry(reason, at_least):
                delay = self._schedule.failed(key, self._clock(), at_least=at_least)
                logger.info("%s waits, and is tried again in %.1f s: %s", key, delay, reason)
                return "retry"

    async def _take(self) -> tuple[K, float]:
        while True:
            now = self._clock()
            taken = self._schedule.take(now)
            if taken is not None:
                key, due = taken
                return key, now - due
            due_next = self._schedule.next_due()
            self._news.clear()
            try:
                await asyncio.wait_for(
                    self._news.wait(), None if due_next is None else max(0.0, due_next - now)
                )
            except TimeoutError:
                continue
