"""Positions: order, and text that reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.positions import EMPTY, EntryId, Position

numbers = st.integers(-1, 2**63 - 1)
positions = st.builds(Position, st.integers(0, 63), numbers, numbers, st.integers(-1, 10_000))


@given(numbers, numbers)
def test_an_entry_id_reads_back(ledger: int, entry: int) -> None:
    assert EntryId.parse(str(EntryId(ledger, entry))) == EntryId(ledger, entry)


@given(positions)
def test_a_position_reads_back(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_positions_are_ordered_by_topic_then_ledger_then_entry_then_batch(a: Position, b: Position) -> None:
    assert (a < b) == (
        (a.storage_topic, a.ledger, a.entry, a.batch) < (b.storage_topic, b.ledger, b.entry, b.batch)
    )


def test_a_later_storage_topic_is_later_whatever_its_ledgers() -> None:
    assert Position(0, 900, 5, 3) < Position(1, 2, 0)


def test_the_messages_of_a_batch_are_ordered_within_their_entry() -> None:
    assert Position(0, 7, 1) < Position(0, 7, 2, 0) < Position(0, 7, 2, 1) < Position(0, 7, 3)
    assert Position(0, 7, 2, 1).entry_id == EntryId(7, 2)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_every_entry_is_after_the_end_of_an_empty_partition(ledger: int, entry: int) -> None:
    assert EntryId(ledger, entry) > EMPTY


@pytest.mark.parametrize("text", ["", ":", "1", "1:", ":1", "1:2:3", "a:b", "1:2.0"])
def test_what_is_no_entry_id_is_refused_with_the_form_that_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="LEDGER:ENTRY"):
        EntryId.parse(text)


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3", "1:2:3:4:5", "0:a:1:-1"])
def test_what_is_no_position_is_refused_with_the_form_that_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC_INDEX:LEDGER:ENTRY:BATCH"):
        Position.parse(text)
