"""The state of a group: marks that only grow, lag, and a record that survives the table."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.groupstate import FORMAT_VERSION, GroupState, GroupStateError, Queue, QueueState
from millrace.core.positions import Position

positions = st.builds(Position, st.integers(0, 3), st.integers(0, 5), st.integers(0, 5), st.integers(-1, 3))
changes = st.lists(
    st.tuples(st.sampled_from(["intends", "parked", "consumed"]), st.sampled_from(list(Queue)), positions),
    max_size=12,
)


def changed(steps: list[tuple[str, Queue, Position]]) -> list[GroupState]:
    states = [GroupState()]
    for verb, queue, position in steps:
        before = states[-1]
        match verb:
            case "intends":
                states.append(before.intends(queue, position, position))
            case "parked":
                states.append(before.parked(queue, position, position))
            case _:
                states.append(before.consumed(queue, position, position))
    return states


@given(changes)
def test_p_and_c_only_grow(steps: list[tuple[str, Queue, Position]]) -> None:
    states = changed(steps)
    for queue in Queue:
        for name in ("p", "c"):
            marks = [getattr(state.of(queue), name) for state in states]
            known = [mark.main for mark in marks if mark is not None]
            assert known == sorted(known)


@given(changes)
def test_a_record_is_read_as_it_was_written(steps: list[tuple[str, Queue, Position]]) -> None:
    state = changed(steps)[-1]
    assert GroupState.from_json(state.to_json()) == state


def test_lag_is_what_is_parked_and_not_consumed() -> None:
    here, later = Position(0, 1, 1), Position(1, 0, 0)
    state = QueueState().intends(here, here)
    assert state.has_lag
    assert not state.consumed(here).has_lag
    assert state.consumed(here).intends(later, later).has_lag


def test_what_lies_before_the_newest_chain_is_dealt_with_and_what_is_in_it_may_not_be() -> None:
    one, two, three = (Position(0, 1, entry) for entry in (1, 2, 3))
    state = QueueState().intends(one, one).intends(two, three)
    assert state.has_dealt_with(one)
    assert not state.has_dealt_with(two)
    assert state.has_parked(two)
    assert state.has_parked(three)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"v":1}', b'{"v":1,"rq":[1],"dlq":[]}', b"\xff"])
def test_what_is_no_record_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(GroupStateError, match="no group's state"):
        GroupState.from_json(data)


def test_a_record_of_a_newer_version_asks_for_an_upgrade() -> None:
    document = json.loads(GroupState().to_json()) | {"v": FORMAT_VERSION + 1}
    with pytest.raises(GroupStateError, match="upgrade"):
        GroupState.from_json(json.dumps(document).encode())
