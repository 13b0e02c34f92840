"""Waits between attempts: their bounds, for every policy, attempt and chance."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.backoff import Backoff, delay
from millrace.core.errors import DomainError

policies = st.builds(
    lambda initial, more, multiplier, jitter: Backoff(initial, initial + more, multiplier, jitter),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(1, 1e3),
    st.floats(0, 1),
)
attempts = st.integers(1, 10**6)
chances = st.floats(0, 1, exclude_max=True)


def test_waits_grow_to_the_maximum() -> None:
    policy = Backoff(initial_seconds=1, max_seconds=10, multiplier=2, jitter=0)
    assert [delay(policy, attempt, 0.5) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_takes_off_at_most_its_share() -> None:
    policy = Backoff(initial_seconds=10, max_seconds=10, jitter=0.2)
    assert delay(policy, 1, 0) == 10
    assert delay(policy, 1, 0.5) == 9
    assert delay(policy, 1, 0.9999999) == pytest.approx(8)


@given(policies, attempts, chances)
def test_a_wait_is_between_the_jittered_and_the_whole_bound(
    policy: Backoff, attempt: int, chance: float
) -> None:
    wait = delay(policy, attempt, chance)
    assert policy.initial_seconds * (1 - policy.jitter) - 1e-6 <= wait <= policy.max_seconds


@given(policies, attempts, chances)
def test_a_later_attempt_never_waits_less_for_the_same_chance(
    policy: Backoff, attempt: int, chance: float
) -> None:
    assert delay(policy, attempt + 1, chance) >= delay(policy, attempt, chance)


@given(policies, attempts, chances, st.floats(0, 1e6))
def test_what_the_endpoint_asks_for_is_a_lower_bound(
    policy: Backoff, attempt: int, chance: float, retry_after: float
) -> None:
    assert delay(policy, attempt, chance, retry_after) == max(delay(policy, attempt, chance), retry_after)


@pytest.mark.parametrize(
    ("initial", "maximum", "multiplier", "jitter"),
    [
        (-1, 1, 2, 0),
        (2, 1, 2, 0),
        (1, 2, 0.5, 0),
        (1, 2, 2, -0.1),
        (1, 2, 2, 1.1),
        (math.nan, 2, 2, 0),
        (1, math.inf, 2, 0),
    ],
)
def test_a_policy_that_cannot_be_is_refused(
    initial: float, maximum: float, multiplier: float, jitter: float
) -> None:
    with pytest.raises(DomainError):
        Backoff(initial, maximum, multiplier, jitter)


def test_attempts_are_counted_from_one() -> None:
    with pytest.raises(DomainError, match="from 1"):
        delay(Backoff(), 0, 0.5)
