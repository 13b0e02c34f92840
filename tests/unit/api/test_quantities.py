from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.api.compositetopic import Retention
from millrace.api.quantities import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds", "minutes"),
    [
        ("45s", 45, 1),
        ("60s", 60, 1),
        ("61s", 61, 2),
        ("30m", 1800, 30),
        ("12h", 43200, 720),
        ("7d", 604800, 10080),
    ],
)
def test_a_duration_is_read_and_rounded_up_to_minutes(text: str, seconds: int, minutes: int) -> None:
    duration = Duration.parse(text)

    assert (duration.seconds, duration.minutes) == (seconds, minutes)


@pytest.mark.parametrize(
    ("text", "amount", "mebibytes"),
    [("1Mi", 1 << 20, 1), ("512Mi", 512 << 20, 512), ("10Gi", 10 << 30, 10240), ("2Ti", 2 << 40, 2 << 20)],
)
def test_a_size_is_read_in_bytes_and_mebibytes(text: str, amount: int, mebibytes: int) -> None:
    size = Size.parse(text)

    assert (size.bytes, size.mebibytes) == (amount, mebibytes)


def test_minus_one_is_without_limit() -> None:
    assert Duration.parse("-1").is_unlimited
    assert (Duration.parse("-1").seconds, Duration.parse("-1").minutes) == (None, -1)
    assert (Size.parse("-1").bytes, Size.parse("-1").mebibytes) == (None, -1)


@pytest.mark.parametrize(
    "text", ["", "7", "0d", "d", "-2", "-1d", "7w", "1.5h", " 7d", "7d\n", "1000000s", "\u0667d"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 7d"):
        Duration.parse(text)


@pytest.mark.parametrize("text", ["", "10", "10G", "10GB", "0Gi", "-1Gi", "10gi"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 10Gi"):
        Size.parse(text)


@given(st.integers(1, 999_999), st.sampled_from("smhd"))
def test_a_duration_written_is_the_same_when_read_again(count: int, unit: str) -> None:
    duration = Duration.parse(f"{count}{unit}")

    assert Duration.parse(str(duration)) == duration


@given(st.integers(1, 999_999), st.sampled_from(["Mi", "Gi", "Ti"]))
def test_a_size_written_is_the_same_when_read_again(count: int, unit: str) -> None:
    size = Size.parse(f"{count}{unit}")

    assert Size.parse(str(size)) == size


@given(st.integers(1, 999_999), st.sampled_from("smhd"))
def test_every_duration_fits_the_integer_that_pulsar_keeps_minutes_in(count: int, unit: str) -> None:
    assert 0 < Duration.parse(f"{count}{unit}").minutes < 2**31


def test_equal_amounts_are_equal_however_they_are_written() -> None:
    assert Duration.parse("24h") == Duration.parse("1d")
    assert Size.parse("1024Mi") == Size.parse("1Gi")


def test_a_model_takes_a_quantity_as_text_and_as_a_value_and_writes_text() -> None:
    read = Retention.model_validate({"time": "12h"})

    assert read == Retention(time=Duration(43200))
    assert read.to_wire() == {"time": "12h", "size": "-1"}
