"""Parked copies: what was parked comes back exactly, and nothing else is taken for a copy."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.parkedcopies import (
    MAX_ERROR,
    OURS,
    ParkedCopy,
    UnreadableCopy,
    original_properties,
    parse,
    properties_of,
)
from millrace.core.positions import Position

numbers = st.integers(0, 10**18 - 1)
positions = st.builds(Position, st.integers(0, 63), numbers, numbers, st.integers(-1, 10_000))
storable = st.text(st.characters(exclude_categories=["Cs"]))
copies = st.builds(ParkedCopy, positions, numbers, st.none() | numbers, storable, st.none() | numbers)
names = storable | st.sampled_from([*OURS, "mr", "mr-", "mr-x-", "mr-x-mr-main", "mr-x-mr-x-mr-main"])
originals = st.dictionaries(names, storable, max_size=8)


@given(copies, originals)
def test_a_copy_reads_back(copy: ParkedCopy, original: dict[str, str]) -> None:
    read = parse(properties_of(copy, original))
    assert (read.main, read.attempts, read.first_failed_ms, read.published_ms) == (
        copy.main,
        copy.attempts,
        copy.first_failed_ms,
        copy.published_ms,
    )
    assert read.error == copy.error[:MAX_ERROR]


@given(copies, originals)
def test_the_producers_properties_come_back_even_if_they_are_called_like_ours(
    copy: ParkedCopy, original: dict[str, str]
) -> None:
    assert original_properties(properties_of(copy, original)) == original


@given(copies, copies, originals)
def test_a_copy_that_is_parked_again_keeps_the_original(
    first: ParkedCopy, second: ParkedCopy, original: dict[str, str]
) -> None:
    again = properties_of(second, original_properties(properties_of(first, original)))
    assert again == properties_of(second, original)


@given(copies, originals, st.text(st.characters(), max_size=2000))
def test_every_property_can_be_written_as_utf8(
    copy: ParkedCopy, original: dict[str, str], error: str
) -> None:
    broken = ParkedCopy(copy.main, copy.attempts, copy.first_failed_ms, error)
    for name, value in properties_of(broken, original).items():
        assert (name + value).encode().decode() == name + value


GOOD = {"mr-main": "0:5:6:-1", "mr-attempts": "3", "mr-first-failed": "1800000000000", "mr-error": "why"}


def test_the_form_of_a_copy_stays_as_it_is() -> None:
    copy = ParkedCopy(Position(0, 5, 6), 3, 1_800_000_000_000, "why")
    assert properties_of(copy, {}) == GOOD
    assert parse(GOOD) == copy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mr-main": None}, "mr-main"),
        ({"mr-main": "1:2"}, "TOPIC_INDEX:LEDGER:ENTRY:BATCH"),
        ({"mr-attempts": None}, "mr-attempts"),
        ({"mr-attempts": "-1"}, "mr-attempts"),
        ({"mr-attempts": "٣"}, "mr-attempts"),
        ({"mr-attempts": "9" * 5000}, "mr-attempts"),
        ({"mr-first-failed": "yesterday"}, "mr-first-failed"),
        ({"mr-published": "1.5"}, "mr-published"),
    ],
)
def test_what_no_shard_wrote_is_refused_with_what_is_wrong(change: dict[str, str | None], says: str) -> None:
    properties = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(UnreadableCopy, match=says):
        parse(properties)


@given(st.dictionaries(names, storable))
def test_no_properties_break_the_reader(properties: dict[str, str]) -> None:
    with suppress(UnreadableCopy):
        assert parse(properties).attempts >= 0
