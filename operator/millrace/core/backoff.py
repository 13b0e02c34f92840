"""How long to wait between the attempts to deliver one message: exponential, bounded, with jitter.

Chance is an argument, so that the same code runs in the simulator: a number from 0 up to, not including, 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from millrace.core.errors import DomainError


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits of a subscription: the first, each next one longer by the multiplier, up to the maximum."""

    initial_seconds: float = 1.0
    max_seconds: float = 300.0
    multiplier: float = 2.0
    jitter: float = 0.2
    """The share of each wait that chance may take off: 0 is nothing, 1 may be all of it."""

    def __post_init__(self) -> None:
        numbers = (self.initial_seconds, self.max_seconds, self.multiplier, self.jitter)
        if not all(math.isfinite(number) for number in numbers):
            raise DomainError(f"a backoff is made of finite numbers, not {numbers}")
        if not 0 <= self.initial_seconds <= self.max_seconds:
            raise DomainError(
                f"a backoff starts at 0 or more and does not start beyond its maximum: "
                f"initial {self.initial_seconds} s, maximum {self.max_seconds} s"
            )
        if self.multiplier < 1:
            raise DomainError(f"a backoff does not shrink: the multiplier {self.multiplier} is less than 1")
        if not 0 <= self.jitter <= 1:
            raise DomainError(f"the jitter is a share between 0 and 1, not {self.jitter}")


def delay(policy: Backoff, attempt: int, chance: float, retry_after: float | None = None) -> float:
    """Seconds from the failure of attempt number `attempt` (from 1) to the next attempt.

    What the endpoint asked for (`retry_after`) is a lower bound.
    """
    if attempt < 1:
        raise DomainError(f"attempts are counted from 1, not {attempt}")
    try:
        wait = min(policy.initial_seconds * policy.multiplier ** (attempt - 1), policy.max_seconds)
    except OverflowError:
        wait = policy.max_seconds if policy.initial_seconds else 0.0
    wait *= 1 - policy.jitter * chance
    return wait if retry_after is None else max(wait, retry_after)
