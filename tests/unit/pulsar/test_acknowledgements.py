"""Which acknowledgements reach the broker, and when: the native ids are real, the broker is a list."""

from __future__ import annotations

import random
from typing import Any

import _pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.pulsar.acknowledgements import Acknowledgements, Entry

Key = tuple[int, int, int]


def native_id(ledger: int, entry: int, index: int, size: int) -> Any:
    """An id as the client hands it out, with the size of its batch (field 6 of MessageIdData)."""
    fields = [(1, ledger), (2, entry)] + ([(4, index), (6, size)] if index >= 0 else [])
    return _pulsar.MessageId.deserialize(
        bytes(byte for number, value in fields for byte in (number << 3, value))
    )


class Partition:
    """Messages of one partition on their way through the acknowledgements."""

    def __init__(self) -> None:
        self.sent: list[Key] = []
        self.acks = Acknowledgements(
            lambda id_: self.sent.append((id_.ledger_id(), id_.entry_id(), id_.batch_index()))
        )
        self.received: dict[Key, tuple[Entry, Any]] = {}

    def receive(self, entry: int, size: int, *indexes: int) -> None:
        for index in indexes or (range(size) if size else (-1,)):
            id_ = native_id(1, entry, index, size)
            self.received[1, entry, index] = (self.acks.received(1, entry, index, id_), id_)

    def ack(self, entry: int, *indexes: int) -> None:
        for index in indexes:
            counted, id_ = self.received[1, entry, index]
            self.acks.ack(counted, index, id_)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_a_message_of_its_own_is_acknowledged_at_once(partition: Partition) -> None:
    partition.receive(5, 0)
    partition.ack(5, -1)
    assert partition.sent == [(1, 5, -1)]
    assert partition.acks.open_entries == 0


def test_an_entry_is_acknowledged_as_a_whole_when_all_of_it_is_done(partition: Partition) -> None:
    partition.receive(5, 3)
    partition.ack(5, 2, 0)
    assert partition.sent == []
    partition.ack(5, 1)
    assert partition.sent == [(1, 5, -1)]
    assert not partition.acks.due


def test_an_entry_of_which_more_comes_is_not_acknowledged_as_a_whole(partition: Partition) -> None:
    partition.receive(5, 3, 0, 1)
    partition.ack(5, 0, 1)
    assert partition.sent == []
    partition.receive(5, 3, 2)
    partition.ack(5, 2)
    assert partition.sent == [(1, 5, -1)]


def test_a_later_entry_shows_that_nothing_more_of_this_one_comes(partition: Partition) -> None:
    partition.receive(5, 3, 0, 1)  # the last was acknowledged before a restart
    partition.ack(5, 0, 1)
    partition.receive(6, 0)
    assert partition.sent == [(1, 5, -1)]


def test_what_waits_for_the_rest_of_its_entry_is_acknowledged_alone_after_two_flushes(
    partition: Partition,
) -> None:
    partition.receive(5, 3)
    partition.ack(5, 0)
    partition.acks.flush()
    assert partition.sent == []
    partition.acks.flush()
    assert partition.sent == [(1, 5, 0)]
    assert not partition.acks.due
    assert partition.acks.is_held(1, 5, 1)
    assert not partition.acks.is_held(1, 5, 0)


def test_the_last_flush_leaves_nothing_behind(partition: Partition) -> None:
    partition.receive(5, 3)
    partition.ack(5, 0, 2)
    partition.acks.flush(everything=True)
    assert sorted(partition.sent) == [(1, 5, 0), (1, 5, 2)]


def test_a_message_that_comes_after_all_before_it_were_acknowledged_alone_is_held(
    partition: Partition,
) -> None:
    partition.receive(5, 3, 0)
    partition.ack(5, 0)
    partition.acks.flush(everything=True)
    partition.receive(5, 3, 1)
    assert partition.acks.is_held(1, 5, 1)


def test_an_id_that_does_not_tell_the_size_of_its_batch_never_acknowledges_the_rest(
    partition: Partition,
) -> None:
    partition.receive(5, 0, 0)
    partition.ack(5, 0)
    assert partition.sent == []
    partition.acks.flush(everything=True)
    assert partition.sent == [(1, 5, 0)]


def test_a_second_acknowledgement_does_nothing(partition: Partition) -> None:
    partition.receive(5, 0)
    partition.ack(5, -1, -1)
    assert partition.sent == [(1, 5, -1)]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 2**32))
def test_nothing_is_acknowledged_before_its_time_and_nothing_is_forgotten(
    sizes: list[int], seed: int
) -> None:
    partition, chance = Partition(), random.Random(seed)
    expected = [
        (entry, index) for entry, size in enumerate(sizes) for index in (range(size) if size else (-1,))
    ]
    to_come, open_ones, done = list(expected), [], set[tuple[int, int]]()
    while to_come or open_ones:
        step = chance.choice(["come", "ack", "flush"])
        if step == "come" and to_come:
            entry, index = to_come.pop(0)
            partition.receive(entry, sizes[entry], index)
            open_ones.append((entry, index))
        elif step == "ack" and open_ones:
            entry, index = open_ones.pop(chance.randrange(len(open_ones)))
            partition.ack(entry, index)
            done.add((entry, index))
        elif step == "flush":
            partition.acks.flush()
        for _, entry, index in partition.sent:
            covered = {each for each in expected if each[0] == entry} if index < 0 else {(entry, index)}
            assert covered <= done, "something was acknowledged before its time"
    partition.acks.flush(everything=True)
    told = {
        each
        for _, entry, index in partition.sent
        for each in (expected if index < 0 else [(entry, index)])
        if each[0] == entry
    }
    assert told == set(expected)
    assert partition.acks.open_entries == 0
