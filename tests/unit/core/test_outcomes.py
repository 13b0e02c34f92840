"""What answers mean: every status there is, every Retry-After anybody might send."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.outcomes import (
    MAX_REASON,
    MAX_RETRY_AFTER,
    HardFailure,
    Retryable,
    Success,
    classify,
    parse_retry_after,
    unanswered,
)

NOW = 1_800_000_000.0
statuses = st.integers(0, 999)


def test_every_2xx_is_a_success_and_nothing_else_is() -> None:
    for status in range(1000):
        assert isinstance(classify(status), Success) == (200 <= status <= 299)


@given(statuses, st.sets(statuses), st.none() | st.floats(0, 100))
def test_exactly_the_listed_codes_are_hard_failures(
    status: int, hard_codes: set[int], retry_after: float | None
) -> None:
    outcome = classify(status, retry_after, hard_codes)
    listed = status in hard_codes and not 200 <= status <= 299
    assert isinstance(outcome, HardFailure) == listed


@given(statuses, st.none() | st.floats(0, 100))
def test_429_503_and_a_wish_to_wait_are_throttling(status: int, retry_after: float | None) -> None:
    outcome = classify(status, retry_after)
    if isinstance(outcome, Retryable):
        assert outcome.throttled == (status in (429, 503) or retry_after is not None)
        assert outcome.retry_after == retry_after


@given(statuses, st.binary(max_size=600))
def test_a_reason_is_one_short_printable_line_that_names_the_status(status: int, said: bytes) -> None:
    outcome = classify(status, said=said)
    if isinstance(outcome, Retryable):
        assert str(status) in outcome.reason
        assert len(outcome.reason) <= MAX_REASON
        assert outcome.reason.isprintable()


def test_a_reason_quotes_the_endpoint() -> None:
    assert classify(404, said=b"no such\r\n\torder \x1b[31m\xff") == Retryable(
        "the endpoint answered 404 Not Found: no such order [31m\ufffd"
    )
    assert classify(499, hard_codes=[499]) == HardFailure("the endpoint answered 499")


@given(st.text(st.characters(), max_size=1000))
def test_no_answer_is_retryable_for_a_reason_that_can_be_stored(error: str) -> None:
    outcome = unanswered(error)
    assert not outcome.throttled
    assert len(outcome.reason) <= MAX_REASON
    assert outcome.reason.encode()


@given(st.integers(0, 10**30))
def test_a_number_of_seconds_is_waited_for_up_to_an_hour(seconds: int) -> None:
    assert parse_retry_after(f" {seconds} ", NOW) == min(seconds, MAX_RETRY_AFTER)


@given(st.integers(-100_000, 100_000))
def test_a_date_is_waited_for_unless_it_has_passed(offset: int) -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + offset, UTC), usegmt=True)
    assert parse_retry_after(date, NOW) == min(max(0, offset), MAX_RETRY_AFTER)


@pytest.mark.parametrize(
    "date",
    [
        "Fri, 15 Jan 2027 08:00:10 GMT",
        "Friday, 15-Jan-27 08:00:10 GMT",
        "Fri Jan 15 08:00:10 2027",
    ],
)
def test_the_three_date_formats_of_http_are_read(date: str) -> None:
    assert parse_retry_after(date, NOW) == 10


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-1", "1.5", "١٢", "Fri, 99 Jan 2027", "Fri, 15 Jan 99999 08:00:00 GMT", "0x10", "\0"],
)
def test_what_is_neither_number_nor_date_is_no_wish(value: str) -> None:
    assert parse_retry_after(value, NOW) is None


@given(st.text(st.characters(), max_size=60))
def test_no_retry_after_breaks_anything(value: str) -> None:
    wait = parse_retry_after(value, NOW)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER
