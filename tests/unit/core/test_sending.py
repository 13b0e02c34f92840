"""Sends of which the broker says that it has them, and not where. (The rest: tests/simulation.)"""

from __future__ import annotations

from millrace.core.descriptor import begin_switch, complete_step, initial
from millrace.core.positions import EntryId, Position
from millrace.core.routing import Routing
from millrace.core.sending import Complete, Link, Locate, Missing, Recover, Send, Sending

DESCRIPTOR = initial("topic", Routing.SHARD_CONSISTENT, [("t0", 1, False), ("t1", 1, False)])
NOWHERE = Position(0, -1, -1)


def at(entry: int) -> Position:
    return Position(0, 0, entry)


def in_flight(count: int) -> tuple[Sending[Send], Link[Send]]:
    """Message 0 is acknowledged at entry 0; those after it are not."""
    core: Sending[Send] = Sending(DESCRIPTOR)
    sends = [Send(sequence, 0) for sequence in range(count + 1)]
    for send in sends:
        core.submit(send)
    [link] = core.links()
    core.opened(link)
    core.acknowledged(link, 0, at(0))
    return core, link


def completed(effects: object) -> list[tuple[int, Position]]:
    assert isinstance(effects, list | tuple)
    return [(effect.send.sequence, effect.position) for effect in effects if isinstance(effect, Complete)]


def test_a_repetition_is_looked_for_from_the_last_acknowledged_entry_on_and_once() -> None:
    core, link = in_flight(3)
    assert core.stored(link, 1) == (Locate(link, EntryId(0, 0)),)
    assert core.stored(link, 2) == ()
    assert core.stored(link, 2) == ()
    assert completed(core.located(link, {1: at(1)}, at(1), whole=True)) == [(1, at(1))]
    assert link.searching
    assert completed(core.located(link, {2: at(2)}, at(2), whole=True)) == [(2, at(2))]
    assert not link.searching
    assert link.acknowledged == at(2)


def test_what_was_passed_before_it_was_known_to_be_a_repetition_is_not_read_twice() -> None:
    core, link = in_flight(3)
    core.stored(link, 1)
    core.located(link, {2: at(1)}, at(1), whole=True)
    assert completed(core.stored(link, 2)) == [(2, at(1))]


def test_a_recovery_begins_before_what_is_not_located() -> None:
    core, link = in_flight(3)
    core.stored(link, 1)
    core.acknowledged(link, 2, at(5))
    core.advanced(begin_switch(DESCRIPTOR, 1))
    moved = complete_step(core.descriptor, [EntryId(0, 5)])
    assert list(core.advanced(moved)) == [Recover(link, EntryId(0, 0), EntryId(0, 5))]
    assert core.located(link, {1: at(1)}, at(1), whole=True) == ()
    assert completed(core.recovered(link, {1: at(1)})) == [(1, at(1))]


def test_what_was_trimmed_counts_as_stored_nobody_knows_where() -> None:
    core, link = in_flight(2)
    core.stored(link, 1)
    core.acknowledged(link, 2, at(5))
    assert completed(core.located(link, {}, at(4), whole=False)) == []
    assert completed(core.located(link, {}, at(5), whole=False)) == [(1, NOWHERE)]
    core, link = in_flight(1)
    core.stored(link, 1)
    assert completed(core.exhausted(link, whole=False)) == [(1, NOWHERE)]


def test_what_is_not_where_it_must_be_was_never_stored() -> None:
    core, link = in_flight(2)
    core.stored(link, 1)
    core.acknowledged(link, 2, at(5))
    assert list(core.located(link, {}, at(5), whole=True)) == [Missing(link)]
    core, link = in_flight(1)
    core.stored(link, 1)
    assert list(core.exhausted(link, whole=True)) == [Missing(link)]
    core.advanced(begin_switch(DESCRIPTOR, 1))
    core.advanced(complete_step(core.descriptor, [EntryId(0, 5)]))
    assert list(core.recovered(link, {})) == [Missing(link)]
