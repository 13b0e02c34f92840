"""Limits of rate and of requests at a time, against simulated endpoints and simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import DomainError
from millrace.core.outcomes import SUCCESS, HardFailure, Outcome, Retryable
from millrace.core.throttling import LONGEST_PAUSE, STEPS, WINDOW, Throttle, TokenBucket

TOO_FAST = Retryable("429", throttled=True)
BROKEN = Retryable("500")
HOPELESS = HardFailure("422")


def deliver(
    throttle: Throttle,
    answer: Callable[[float, int], Outcome],
    *,
    seconds: float,
    start: float = 0.0,
    latency: float = 0.01,
) -> list[float]:
    """As many requests as are admitted, answered after `latency`; gives the times at which they began."""
    now, begun = start, list[float]()
    in_flight: list[tuple[float, Outcome]] = []
    while now < start + seconds:
        while throttle.admits(now, len(in_flight)):
            in_flight.append((now + latency, answer(now, len(begun))))
            begun.append(now)
        ends = [in_flight[0][0]] if in_flight else []
        wait = throttle.wait(now)
        if wait > 0 and len(in_flight) < throttle.limit:
            ends.append(now + wait)
        assert ends, "nothing in flight, nothing to wait for, and yet nothing is admitted"
        now = max(now, min(ends))
        while in_flight and in_flight[0][0] <= now:
            throttle.answered(in_flight.pop(0)[1], now)
    return begun


@given(st.floats(0.1, 10_000), st.lists(st.floats(0, 2), max_size=200))
def test_a_bucket_never_lets_through_more_than_its_rate_and_one_burst(rate: float, gaps: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate), 100.0, 0
    for gap in gaps:
        now += gap
        while bucket.take(now):
            taken += 1
        assert taken <= (now - 100.0) * rate + max(1.0, rate / 10) + 1e-3


@given(st.floats(0.1, 10_000), st.floats(0, 1e6))
def test_after_the_wait_that_a_bucket_tells_there_is_a_token(rate: float, now: float) -> None:
    bucket = TokenBucket(rate)
    for _ in range(50):
        now += bucket.wait(now) + 1e-9 * max(1.0, now)
        assert bucket.take(now)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    with pytest.raises(DomainError):
        TokenBucket(rate)


def test_no_request_at_a_time_cannot_be() -> None:
    with pytest.raises(DomainError):
        Throttle(max_in_flight=0)


def test_a_clock_that_stands_still_or_goes_back_gives_no_tokens() -> None:
    bucket = TokenBucket(1)
    assert bucket.take(10)
    assert not bucket.take(10)
    assert not bucket.take(3)
    assert bucket.take(11)


def test_a_healthy_endpoint_gets_all_there_is() -> None:
    throttle = Throttle(max_in_flight=64)
    assert len(deliver(throttle, lambda _now, _n: SUCCESS, seconds=1)) == pytest.approx(6400, rel=0.05)
    assert not throttle.throttled


def test_the_rate_is_kept_over_seconds() -> None:
    throttle = Throttle(max_in_flight=64, max_per_second=100)
    assert len(deliver(throttle, lambda _now, _n: SUCCESS, seconds=10)) == pytest.approx(1000, rel=0.02)


def test_the_requests_at_a_time_are_halved_each_window_while_all_fail() -> None:
    throttle = Throttle(max_in_flight=64)
    limits = []
    for window in range(8):
        deliver(throttle, lambda _now, _n: BROKEN, seconds=WINDOW, start=window * WINDOW)
        limits.append(throttle.limit)
    assert limits[0] == 64
    assert set(limits) <= {64, 32, 16, 8, 4, 2, 1}
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] <= 1


def test_they_grow_back_to_all_within_the_steps() -> None:
    throttle = Throttle(max_in_flight=64)
    deliver(throttle, lambda _now, _n: BROKEN, seconds=5)
    assert throttle.throttled
    deliver(throttle, lambda _now, _n: SUCCESS, seconds=(STEPS + 4) * WINDOW + LONGEST_PAUSE, start=5)
    assert not throttle.throttled


@pytest.mark.parametrize("outcome", [BROKEN, TOO_FAST, Retryable("503", retry_after=2, throttled=True)])
def test_a_few_groups_that_fail_do_not_slow_the_others_down(outcome: Retryable) -> None:
    healthy = len(deliver(Throttle(max_in_flight=64), lambda _now, _n: SUCCESS, seconds=10))
    throttle = Throttle(max_in_flight=64)
    mixed = deliver(throttle, lambda _now, n: outcome if n % 100 == 50 else SUCCESS, seconds=10)
    assert len(mixed) >= 0.9 * healthy


def test_errors_up_to_the_threshold_are_borne_and_above_it_they_are_not() -> None:
    below = Throttle(max_in_flight=64, error_rate_threshold=0.5)
    deliver(below, lambda _now, n: BROKEN if n % 10 < 4 else SUCCESS, seconds=5)
    assert not below.throttled
    above = Throttle(max_in_flight=64, error_rate_threshold=0.5)
    deliver(above, lambda _now, n: BROKEN if n % 10 < 6 else SUCCESS, seconds=5)
    assert above.limit == 1


def test_a_threshold_of_one_turns_it_off() -> None:
    throttle = Throttle(max_in_flight=64, error_rate_threshold=1)
    deliver(throttle, lambda _now, _n: BROKEN, seconds=5)
    assert not throttle.throttled


def test_messages_that_are_hopeless_say_nothing_about_the_endpoint() -> None:
    throttle = Throttle(max_in_flight=64)
    deliver(throttle, lambda _now, _n: HOPELESS, seconds=5)
    assert not throttle.throttled


def test_one_failure_alone_does_not_slow_down() -> None:
    throttle = Throttle(max_in_flight=64)
    throttle.answered(BROKEN, 0)
    throttle.answered(SUCCESS, 10)
    assert not throttle.throttled


def test_retry_after_is_honoured_to_the_moment() -> None:
    throttle = Throttle(max_in_flight=64)
    assert throttle.admits(0, 0)
    throttle.answered(Retryable("503", retry_after=30, throttled=True), 1)
    assert throttle.wait(1) == 30
    assert not throttle.admits(30.99, 0)
    assert throttle.admits(31, 0)


def test_the_longest_wish_counts() -> None:
    throttle = Throttle(max_in_flight=64)
    for seconds in (5, 30, 1):
        throttle.answered(Retryable("503", retry_after=seconds, throttled=True), 0)
    assert throttle.wait(0) == 30


def test_an_endpoint_that_takes_a_fixed_rate_is_not_hammered() -> None:
    """It takes 100 requests a second and refuses the others, however few there are at a time."""
    allowed = TokenBucket(100)
    throttle = Throttle(max_in_flight=64)
    refused = 0

    def answer(now: float, _n: int) -> Outcome:
        nonlocal refused
        if allowed.take(now):
            return SUCCESS
        refused += 1
        return TOO_FAST

    begun = deliver(throttle, answer, seconds=120, latency=0.005)
    taken = len(begun) - refused
    assert taken >= 0.7 * 120 * 100, "most of what the endpoint offers is used"
    assert refused <= 5 * taken, "an unthrottled client would be refused 127 times as often as it is served"


def test_when_one_at_a_time_is_too_much_the_pauses_grow_to_their_bound() -> None:
    throttle = Throttle(max_in_flight=4)
    begun = deliver(throttle, lambda _now, _n: TOO_FAST, seconds=120)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(begun) if later - earlier > 0.05]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE, abs=0.02)


outcomes = st.sampled_from(
    [SUCCESS, BROKEN, TOO_FAST, HOPELESS, Retryable("503", retry_after=3, throttled=True)]
)


@given(
    st.integers(1, 200),
    st.none() | st.floats(0.5, 1000),
    st.lists(st.tuples(outcomes, st.floats(0, 1)), max_size=200),
)
def test_whatever_is_answered_the_limit_stays_within_bounds_and_every_wait_ends(
    max_in_flight: int, rate: float | None, answers: list[tuple[Outcome, float]]
) -> None:
    throttle, now = Throttle(max_in_flight=max_in_flight, max_per_second=rate), 0.0
    for outcome, gap in answers:
        now += gap
        throttle.answered(outcome, now)
        assert 1 <= throttle.limit <= max_in_flight
        assert not throttle.admits(now, throttle.limit)
        assert throttle.wait(now) <= LONGEST_PAUSE
    now += throttle.wait(now) + 1e-6
    assert throttle.admits(now, 0)
