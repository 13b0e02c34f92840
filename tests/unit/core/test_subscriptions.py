"""The plan of a Subscription: every stage and verdict, and that it converges from every interruption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.api.reasons import ConditionType, Reason
from millrace.core import compositetopicactions as topics
from millrace.core.compositetopics import Settled
from millrace.core.descriptor import append, begin_switch, complete_step, initial
from millrace.core.ownership import Owner, owner_properties
from millrace.core.positions import EMPTY
from millrace.core.routing import Layout, Routing
from millrace.core.subscriptionactions import (
    SHARD_COUNT,
    ApplyWorkload,
    CreateCursors,
    EnsureTable,
    OnQueue,
    Queue,
    RenewTable,
    Start,
    Wanted,
)
from millrace.core.subscriptiondeletions import plan_deletion
from tests.unit.core import pulsarmodel
from tests.unit.core.subscriptionmodel import (
    Cursor,
    Step,
    World,
    histories,
    name,
    outcome,
    run,
    there,
    topic,
    wanted,
)

RQ = "persistent://acme/shop/shop.billing_rq-0"
DLQ = "persistent://acme/shop/shop.billing_dlq-0"


def state(shard: int) -> str:
    return f"persistent://acme/shop/shop.billing_state-0-{shard}"


def starts(world: World, topic_name: str) -> set[Start | int]:
    return {cursor.start for cursor in world.cursor(topic_name).values()}


def layouts(world: World) -> set[Layout]:
    return {
        found.storage_topics[0].layout
        for queue in world.queues.values()
        if (found := queue.descriptor) is not None
    }


# Creation


def test_a_new_subscription_gets_cursors_queues_tables_and_pods() -> None:
    world, verdict, _ = outcome(World(topic(4)), wanted(2))

    assert verdict.reason is Reason.STARTING_SHARDS
    assert {topic for topic, cursors in world.cursors.items() if len(cursors) == 4} == {name(0), RQ, DLQ}
    assert set(world.tables) == {state(0), state(1)}
    assert {properties[SHARD_COUNT] for properties in world.tables.values()} == {"2"}
    assert world.workload == ApplyWorkload(2, suspended=False)


def test_it_is_ready_when_every_shard_is_held_and_then_left_as_it_is() -> None:
    before = there(2, 4)

    after, verdict, _ = outcome(before, wanted(2, begun=True))

    assert (after, verdict.reason) == (before, Reason.READY)
    assert verdict.message == "2 shards deliver shop/orders"


def test_a_shard_that_nobody_holds_is_waited_for() -> None:
    _, verdict, _ = outcome(replace(there(2, 4), holders={0: "pod-0"}), wanted(2, begun=True))

    assert verdict.reason is Reason.STARTING_SHARDS
    assert verdict.message.startswith("1 of 2 shards are held by a pod")


def test_a_topic_without_a_descriptor_is_waited_for_and_nothing_is_created() -> None:
    world, verdict, _ = outcome(World(), wanted())

    assert (world, verdict.reason) == (World(), Reason.WAITING_FOR_TOPIC)


# The order in which things come


@pytest.mark.parametrize(
    ("start", "expected"),
    [(Start.EARLIEST, Start.EARLIEST), (Start.LATEST, Start.LATEST), (1700000000000, 1700000000000)],
)
def test_a_new_subscription_starts_where_it_is_asked_to(start: Start | int, expected: Start | int) -> None:
    world, _, _ = outcome(World(topic(2, 4, 8, pointer=1)), wanted(2, start=start))

    assert starts(world, name(0)) == {expected}
    assert starts(world, name(1)) == {expected}
    assert starts(world, name(2)) == {Start.EARLIEST}, "what is not produced to yet is all to be read"
    assert starts(world, RQ) == starts(world, DLQ) == {Start.EARLIEST}


def test_cursors_come_on_the_newest_storage_topic_first() -> None:
    _, _, actions = outcome(World(topic(2, 4, 8, pointer=1)), wanted(2, start=Start.LATEST))

    created = [action.topic for action in actions if isinstance(action, CreateCursors)]
    assert created[:3] == [name(2), name(1), name(0)]


def test_a_storage_topic_that_comes_later_is_read_from_its_beginning() -> None:
    before = there(2, 4)
    assert before.main is not None
    switched = complete_step(begin_switch(append(before.main, [(name(1), 8, False)]), 1), [EMPTY] * 4)

    after, _, _ = outcome(replace(before, main=switched), wanted(2, start=Start.LATEST))

    assert starts(after, name(1)) == {Start.EARLIEST}


def test_a_cursor_that_was_lost_is_made_anew_at_the_beginning_whatever_start_from_says() -> None:
    lost = replace(there(2, 4), cursors={})

    after, _, _ = outcome(lost, wanted(2, start=Start.LATEST, begun=True))

    assert starts(after, name(0)) == {Start.EARLIEST}


def test_a_cursor_that_is_missing_in_one_partition_is_made_there_alone() -> None:
    holed = there(2, 4).with_cursors(name(0), {p: Cursor(Start.LATEST, 7) for p in (0, 1, 3)})

    after, _, actions = outcome(holed, wanted(2, start=Start.LATEST))

    assert CreateCursors(name(0), 4, (2,), Start.EARLIEST) in actions
    assert after.cursor(name(0))[0] == Cursor(Start.LATEST, 7)


SCENARIOS = [
    pytest.param(World(topic(4)), wanted(2), id="creation"),
    pytest.param(World(topic(2, 4, 8, pointer=1)), wanted(2, start=Start.LATEST), id="in the middle"),
    pytest.param(there(2, 4), wanted(0), id="suspension"),
    pytest.param(World(topic(4)), wanted(0), id="creation in suspension"),
    pytest.param(World(topic(4)), wanted(3, allow_uneven=True), id="uneven"),
]


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_wherever_the_process_dies_the_same_end_is_reached(world: World, spec: Wanted) -> None:
    end, verdict, _ = outcome(world, spec)
    for step in histories(world, spec):
        if isinstance(step, Step):
            finished, last, _ = outcome(step.after, spec)
            assert (finished.tables, finished.workload) == (end.tables, end.workload)
            assert {t: set(c) for t, c in finished.cursors.items()} == {
                t: set(c) for t, c in end.cursors.items()
            }
            assert last.reason is verdict.reason


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_pods_come_only_when_everything_that_they_need_is_there(world: World, spec: Wanted) -> None:
    for step in histories(world, spec):
        if isinstance(step, Step) and isinstance(step.action, ApplyWorkload):
            assert step.before.main is not None
            for queue in step.before.queues.values():
                assert queue.descriptor is not None
            partitions = {each.topic: each.layout.partitions for each in step.before.main.storage_topics}
            current = step.before.main.produce_topic.layout.partitions
            for each, count in {**partitions, RQ: current, DLQ: current}.items():
                assert len(step.before.cursor(each)) == count
            assert {state(shard) for shard in range(step.action.shard_count)} <= step.before.settled_tables


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_no_message_that_is_produced_later_is_ever_skipped_by_a_cursor(world: World, spec: Wanted) -> None:
    """Wherever the process dies: behind the topic that producers write to, every cursor is at earliest."""
    for step in histories(world, spec):
        if isinstance(step, Step) and isinstance(step.action, CreateCursors) and world.main is not None:
            later = [t.topic for t in world.main.storage_topics[world.main.produce_pointer + 1 :]]
            if step.action.topic in later:
                assert step.action.start is Start.EARLIEST


# Queues


@pytest.mark.parametrize("routing", [Routing.SHARD_CONSISTENT, Routing.RANGE])
def test_queues_are_laid_out_like_the_topic_that_producers_write_to(routing: Routing) -> None:
    main = topic(2, 12, pointer=1, routing=routing)

    world, _, _ = outcome(World(main), wanted(2))

    assert layouts(world) == {main.produce_topic.layout}


def test_queues_of_an_adopted_topic_have_a_routing_of_their_own() -> None:
    adopted = initial("shop/orders", Routing.SHARD_CONSISTENT, [(name(0), 4, True)])

    world, _, _ = outcome(World(adopted), wanted(2))

    assert layouts(world) == {Layout(4, 1, Routing.SHARD_CONSISTENT)}


def test_queues_stay_as_they_are_when_the_topic_moves_on() -> None:
    before = there(2, 4)
    assert before.main is not None
    switched = complete_step(begin_switch(append(before.main, [(name(1), 8, False)]), 1), [EMPTY] * 4)

    after, verdict, _ = outcome(replace(before, main=switched), wanted(2, begun=True))

    assert verdict.reason is Reason.READY
    assert layouts(after) == {Layout(4)}


def test_partitions_of_a_queue_that_fit_are_taken_and_others_are_refused_before_anything_is_made() -> None:
    ranged = World(topic(4, routing=Routing.RANGE))
    fitting = wanted(2, queue_partitions={Queue.RETRY: 8})
    world, _, _ = outcome(ranged, fitting)
    retry = world.queues[Queue.RETRY].descriptor
    assert retry is not None
    assert retry.produce_topic.layout == Layout(8, 1, Routing.RANGE)

    world, verdict, _ = outcome(ranged, wanted(2, queue_partitions={Queue.DEAD_LETTER: 3}))
    assert verdict.reason is Reason.QUEUE_MISMATCH
    assert "deadLetterPartitions 3" in verdict.message
    assert world.queues[Queue.DEAD_LETTER] == pulsarmodel.World()
    assert (world.tables, world.workload) == ({}, None)


def test_a_foreign_queue_topic_stalls_and_is_left_alone() -> None:
    foreign = pulsarmodel.World({RQ: pulsarmodel.Topic.of(0, 0, properties=pulsarmodel.FOREIGN)})
    before = World(topic(4)).with_queue(Queue.RETRY, foreign)

    world, verdict, _ = outcome(before, wanted(2))

    assert verdict.reason is Reason.FOREIGN_OWNER
    assert verdict.message.startswith("the retry queue: ")
    assert world.queues[Queue.RETRY].topics[RQ] == foreign.topics[RQ]


def test_a_queue_that_was_lost_is_not_made_anew_silently() -> None:
    lost = there(2, 4).with_queue(Queue.RETRY, pulsarmodel.World())

    world, verdict, _ = outcome(lost, wanted(2, begun=True, published={Queue.RETRY: 1}))

    assert verdict.reason is Reason.TOPIC_VANISHED
    assert world == lost


# Shards


def test_the_count_is_decided_once_and_a_later_wish_waits() -> None:
    before = there(2, 4)

    after, verdict, _ = outcome(before, wanted(4, begun=True))

    assert (after, verdict.reason) == (before, Reason.READY)


def test_the_count_survives_when_kubernetes_is_lost_and_the_object_is_applied_with_another() -> None:
    left = replace(there(2, 4), workload=None, holders={})
    again = replace(wanted(4), owner=replace(wanted().owner, uid="uid-2"))

    after, _, actions = outcome(left, again)

    assert after.workload == ApplyWorkload(2, suspended=False)
    assert RenewTable(0, state(0)) in actions


def test_a_count_that_does_not_fit_is_raised() -> None:
    world, _, _ = outcome(World(topic(12)), wanted(5))

    assert world.workload == ApplyWorkload(6, suspended=False)


def test_a_suspended_subscription_keeps_its_shards_and_has_no_pods() -> None:
    world, verdict, _ = outcome(there(2, 4), wanted(0, begun=True))

    assert (verdict.reason, verdict.condition) == (Reason.SUSPENDED, ConditionType.READY)
    assert world.workload == ApplyWorkload(2, suspended=True)


def test_one_that_was_never_anything_but_suspended_has_cursors_and_no_tables() -> None:
    world, verdict, _ = outcome(World(topic(4)), wanted(0))

    assert verdict.reason is Reason.SUSPENDED
    assert len(world.cursor(name(0))) == 4, "what is produced meanwhile waits"
    assert (world.tables, world.workload) == ({}, None)


def test_a_foreign_table_stalls_and_is_left_alone() -> None:
    foreign = {state(1): owner_properties(Owner("prod-us", "store", "payments", "uid-9"))}

    world, verdict, _ = outcome(World(topic(4), tables=foreign), wanted(2))

    assert verdict.reason is Reason.FOREIGN_OWNER
    assert world.tables[state(1)] == foreign[state(1)]
    assert world.workload is None


def test_a_table_that_lost_its_count_is_for_a_person_to_look_at() -> None:
    bare = {state(0): owner_properties(wanted().owner)}

    _, verdict, _ = outcome(World(topic(4), tables=bare), wanted(2))

    assert verdict.reason is Reason.DESCRIPTOR_UNREADABLE


def test_the_first_table_is_made_before_any_other() -> None:
    _, _, actions = outcome(World(topic(4)), wanted(4))

    assert [action.shard for action in actions if isinstance(action, EnsureTable)] == [0, 1, 2, 3]


# Barriers


def moved(shards: int, first: int, then: int, *, backlog: int) -> World:
    before = there(shards, first)
    assert before.main is not None
    switched = complete_step(begin_switch(append(before.main, [(name(1), then, False)]), 1), [EMPTY] * first)
    return replace(before, main=switched).with_backlog(name(0), backlog)


@pytest.mark.parametrize("backlog", [0, 3], ids=["drained", "not drained"])
def test_a_move_that_keeps_groups_on_their_shards_needs_no_word(backlog: int) -> None:
    _, verdict, _ = outcome(moved(2, 4, 8, backlog=backlog), wanted(2, begun=True))

    assert verdict.reason is Reason.READY


@pytest.mark.parametrize("backlog", [0, 3], ids=["drained", "not drained"])
def test_a_move_that_puts_groups_on_other_shards_is_told_also_because_of_what_is_parked(backlog: int) -> None:
    _, verdict, _ = outcome(moved(2, 4, 6, backlog=backlog), wanted(2, begun=True))

    assert (verdict.reason, verdict.condition) == (Reason.BARRIER_NEEDED, ConditionType.STALLED)
    assert name(1) in verdict.message
    assert "reshard" in verdict.message


def test_one_shard_crosses_every_border() -> None:
    _, verdict, _ = outcome(moved(1, 4, 6, backlog=3), wanted(1, begun=True))

    assert verdict.reason is Reason.READY


# Deletion


@pytest.mark.parametrize(
    "world",
    [there(2, 4), there(4, 2, 4, pointer=1), World(topic(4)), World()],
    ids=["two", "moved", "new", "bare"],
)
def test_a_deletion_leaves_nothing_wherever_the_process_dies(world: World) -> None:
    for step in histories(world, wanted(2), plan_deletion):
        assert isinstance(step, Step)
        final = step.after
        for last in run(step.after, wanted(2), plan_deletion):
            assert isinstance(last, Step)
            final = last.after
        assert (final.cursors.keys() <= {RQ, DLQ}, final.tables, final.workload) == (True, {}, None)
        assert all(not queue.topics for queue in final.queues.values())


def test_nothing_is_deleted_while_pods_run() -> None:
    steps = [step for step in run(there(2, 4), wanted(2), plan_deletion) if isinstance(step, Step)]

    assert steps[0].after.workload is None
    assert all(step.verdict.reason is Reason.DELETING for step in steps)


def test_what_belongs_to_somebody_else_survives_a_deletion() -> None:
    foreign = owner_properties(Owner("prod-us", "store", "payments", "uid-9"))
    theirs = there(2, 4)
    theirs = replace(theirs, tables={**theirs.tables, state(1): foreign})
    final = theirs
    for step in run(theirs, wanted(2), plan_deletion):
        assert isinstance(step, Step)
        final = step.after

    assert set(final.tables) == {state(1)}


def test_an_action_on_a_queue_says_which() -> None:
    actions = [
        step.action
        for step in run(World(topic(4)), wanted(2))
        if not isinstance(step, Settled) and isinstance(step.action, OnQueue)
    ]

    assert {action.queue for action in actions} == set(Queue)
    assert any(isinstance(action.action, topics.PublishDescriptor) for action in actions)
