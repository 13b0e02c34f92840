"""When the record of a recovered group may go."""

from __future__ import annotations

from millrace.consuming.forgetting import ROUNDS, Forgetting, Progress, is_settled
from millrace.core.groupstate import GroupState, Queue
from millrace.core.positions import Position


def at(entry: int) -> Position:
    return Position(0, 1, entry)


RECOVERED = (
    GroupState()
    .intends(Queue.RETRY, at(3), at(5))
    .parked(Queue.RETRY, at(5), at(9))
    .consumed(Queue.RETRY, at(5))
)


def test_progress_ends_at_the_first_message_that_is_not_settled() -> None:
    progress = Progress()
    entries = [progress.received(at(number)) for number in range(4)]
    progress.settled(entries[1])
    assert progress.acked is None
    progress.settled(entries[0])
    assert progress.acked == at(1)
    progress.settled(entries[3])
    assert progress.acked == at(1)


def test_a_group_is_settled_when_both_topics_are_acknowledged_up_to_its_last_copy() -> None:
    assert is_settled(RECOVERED, lambda main: main <= at(5), lambda internal: internal <= at(9))
    assert not is_settled(RECOVERED, lambda main: main < at(5), lambda _: True)
    assert not is_settled(RECOVERED, lambda _: True, lambda internal: internal < at(9))


def test_a_group_with_lag_or_a_dead_letter_is_never_settled() -> None:
    lagging = RECOVERED.intends(Queue.RETRY, at(6), at(6))
    buried = RECOVERED.intends(Queue.DEAD_LETTER, at(6), at(6))
    for state in (lagging, buried, GroupState()):
        assert not is_settled(state, lambda _: True, lambda _: True)


def test_a_group_whose_last_copy_is_not_known_to_be_stored_is_not_settled() -> None:
    state = GroupState().intends(Queue.RETRY, at(3), at(5)).consumed(Queue.RETRY, at(5))
    assert not is_settled(state, lambda _: True, lambda _: True)


def test_a_group_is_forgotten_after_enough_looks_in_a_row() -> None:
    forgetting = Forgetting()
    for _ in range(ROUNDS - 1):
        assert forgetting.looked({"a", "b"}, disturbed=False) == set()
    assert forgetting.looked({"a"}, disturbed=False) == {"a"}
    assert forgetting.looked({"b"}, disturbed=False) == set(), "b was missing once"


def test_a_broken_connection_starts_the_count_again() -> None:
    forgetting = Forgetting()
    for _ in range(ROUNDS - 1):
        forgetting.looked({"a"}, disturbed=False)
    assert forgetting.looked({"a"}, disturbed=True) == set()
    for _ in range(ROUNDS - 2):
        assert forgetting.looked({"a"}, disturbed=False) == set()
    assert forgetting.looked({"a"}, disturbed=False) == {"a"}
