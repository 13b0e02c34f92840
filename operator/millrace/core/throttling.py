"""How fast an endpoint is asked: at most so often, and less often when it shows that it gets too much.

Two independent limits. A token bucket holds the rate that the subscription sets. The number of requests at a
time adapts: every half second it is halved if too many answers failed or asked for less, and grows by a step
if they did not. The share counts, not the single answer: a few groups that fail for reasons of their own must
not slow down all the others. When one request at a time is still too much, deliveries pause, longer each
time; what the endpoint asks for (Retry-After) is a pause too.

Time is an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

import math

from millrace.core.errors import DomainError
from millrace.core.outcomes import Outcome, Retryable

WINDOW = 0.5
"""Seconds over which answers are judged; the number of requests at a time changes once in it."""

STEPS = 16
"""Windows without complaint from one request at a time to all of them."""

THROTTLED_SHARE = 0.1
"""Above this share of answers that ask for less we are too fast; below it they concern single groups."""

ENOUGH = 10
"""Answers in a window before a share of errors means anything. One that asks for less is clear by itself."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


class TokenBucket:
    """At most `rate` requests per second, and at most a tenth of a second's worth at once."""

    def __init__(self, rate: float) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise DomainError(f"a rate is a positive number, not {rate}")
        self._rate = rate
        self._burst = max(1.0, rate / 10)
        self._tokens = self._burst
        self._at = -math.inf

    def take(self, now: float) -> bool:
        """Whether a request may start now; if so it is counted."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds until a request may start."""
        self._fill(now)
        return max(0.0, (1 - self._tokens) / self._rate)

    def _fill(self, now: float) -> None:
        if now > self._at:
            if self._at > -math.inf:
                # The margin keeps a caller that waited exactly as long as told from waiting once more.
                self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate + 1e-9)
            self._at = now


class Throttle:
    """Both limits of one endpoint."""

    def __init__(
        self, *, max_in_flight: int, max_per_second: float | None = None, error_rate_threshold: float = 0.5
    ) -> None:
        if max_in_flight < 1:
            raise DomainError(f"at least one request has to be allowed at a time, not {max_in_flight}")
        self._bucket = None if max_per_second is None else TokenBucket(max_per_second)
        self._max_in_flight = max_in_flight
        self._step = max(1, math.ceil(max_in_flight / STEPS))
        self._threshold = error_rate_threshold
        self._limit = max_in_flight
        self._pause = FIRST_PAUSE
        self._paused_until = -math.inf
        self._window_ends = -math.inf
        self._answers = self._errors = self._throttled = 0
        self._answers_before = self._throttled_before = 0
        """Of the window before: without it the first answers of a window would decide alone."""

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return self._limit

    @property
    def throttled(self) -> bool:
        """Whether the endpoint gets less than it could by the subscription's own settings."""
        return self._limit < self._max_in_flight

    def admits(self, now: float, in_flight: int) -> bool:
        """Whether another request may start now; if so it is counted."""
        if in_flight >= self._limit or now < self._paused_until:
            return False
        return self._bucket is None or self._bucket.take(now)

    def wait(self, now: float) -> float:
        """Seconds until another request may start, if few enough are in flight; 0 for at once."""
        pause = max(0.0, self._paused_until - now)
        return pause if self._bucket is None else max(pause, self._bucket.wait(now))

    def answered(self, outcome: Outcome, now: float) -> None:
        """Learn from an answer, or from the lack of one."""
        if now >= self._window_ends:
            self._judge(now)
        self._answers += 1
        if not isinstance(outcome, Retryable):
            return
        if not outcome.throttled:
            self._errors += 1
            return
        self._throttled += 1
        if outcome.retry_after is not None and self._throttled + self._throttled_before > THROTTLED_SHARE * (
            self._answers + self._answers_before
        ):
            self._paused_until = max(self._paused_until, now + outcome.retry_after)

    def _judge(self, now: float) -> None:
        """Draw the conclusion from the window that has ended, and begin another."""
        if self._too_much:
            if self._limit == 1:
                self._paused_until = max(self._paused_until, now + self._pause)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._limit = max(1, self._limit // 2)
        elif self._answers:
            self._limit = min(self._max_in_flight, self._limit + self._step)
            self._pause = FIRST_PAUSE
        recent = now < self._window_ends + WINDOW
        self._answers_before = self._answers if recent else 0
        self._throttled_before = self._throttled if recent else 0
        self._window_ends = now + WINDOW
        self._answers = self._errors = self._throttled = 0

    @property
    def _too_much(self) -> bool:
        if self._throttled > THROTTLED_SHARE * self._answers:
            return True
        return self._answers >= ENOUGH and self._errors > self._threshold * self._answers
