"""The status of a Subscription: small, quiet, and rebuilt from what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millrace.api.meta import Condition
from millrace.api.reasons import Reason
from millrace.api.subscription import Lag, ShardStatus, SubscriptionStatus
from millrace.core import compositetopicactions as topics
from millrace.core.conditions import Adjustment, conditions, ready
from millrace.core.routing import shard_of_partition
from millrace.core.shardleases import ShardLease
from millrace.core.subscriptionactions import CursorFacts, Knowledge, Queue, TableFacts, Workload
from millrace.core.subscriptions import running_count, undrained
from millrace.core.subscriptionstatus import adjustment, as_range, counted, lag_of, listed, shards_of, status
from tests.unit.core.subscriptionmodel import name, topic, wanted

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def known(*partitions: int, shards: int = 2, backlog: int = 0, pointer: int = 0) -> Knowledge:
    table = TableFacts(True, {"millrace.dev/shard-count": str(shards)}, settled=True)
    return Knowledge(
        main_read=True,
        main=topic(*partitions, pointer=pointer),
        cursors={name(index): CursorFacts((), backlog) for index in range(len(partitions))},
        tables=dict.fromkeys(range(shards), table),
        workload=Workload(
            tuple(ShardLease(shard, f"pod-{shard}", shard + 1, 10, 1) for shard in range(shards)),
            shards + 1,
            shards + 1,
        ),
    )


def written(
    found: Knowledge, shards: int = 2, before: SubscriptionStatus | None = None, now: datetime = NOW
) -> SubscriptionStatus:
    return status(wanted(shards), found, (), before or SubscriptionStatus(), generation=3, now=now)


def test_a_status_says_who_owns_what() -> None:
    made = written(known(12, shards=4, backlog=7), 4)

    assert (made.observed_generation, made.effective_shard_count, made.replicas) == (3, 4, 4)
    assert made.selector == "millrace.dev/subscription=billing,millrace.dev/shard-generation=0"
    assert made.owned_shards == 4
    assert [shard.to_wire() for shard in made.shards[:2]] == [
        {
            "id": 0,
            "owner": "pod-0",
            "epoch": 1,
            "assignments": [{"topicName": name(0), "storageTopicIndex": 0, "partitions": "0-2"}],
        },
        {
            "id": 1,
            "owner": "pod-1",
            "epoch": 2,
            "assignments": [{"topicName": name(0), "storageTopicIndex": 0, "partitions": "3-5"}],
        },
    ]
    assert (made.blocked_groups, made.dead_lettered_groups) == (40, 4)


@pytest.mark.parametrize(("partitions", "count"), [(12, 4), (12, 5), (7, 3), (3, 5), (1, 1)])
def test_assignments_tile_the_topic(partitions: int, count: int) -> None:
    made = shards_of(known(partitions, shards=count), count, ())

    owners = {}
    for shard in made:
        text = shard.assignments[0].partitions
        first, _, last = text.partition("-")
        for partition in range(int(first), int(last or first) + 1) if text else ():
            assert partition not in owners
            owners[partition] = shard.id
    assert owners == {each: shard_of_partition(each, partitions, count) for each in range(partitions)}


@pytest.mark.parametrize(("partitions", "text"), [(range(6), "0-5"), (range(3, 4), "3"), (range(2, 2), "")])
def test_partitions_are_written_as_a_range(partitions: range, text: str) -> None:
    assert as_range(partitions) == text


def test_a_drained_storage_topic_is_no_longer_listed() -> None:
    found = known(2, 4, pointer=1)

    assert undrained(found) == (1,)
    assert undrained(replace(found, cursors={name(0): CursorFacts((), 1), name(1): CursorFacts()})) == (0, 1)
    assert undrained(known(2)) == (0,), "that nothing waits in an open topic means nothing"


@pytest.mark.parametrize("shards", [1, 10, 100, 250, 1000])
def test_a_status_of_1000_partitions_stays_below_32_kib(shards: int) -> None:
    found = known(1000, 1000, shards=shards, backlog=1, pointer=1)
    long = tuple(replace(lease, holder="p" * 63) for lease in found.workload.leases) if found.workload else ()
    found = replace(found, workload=Workload(long))

    made = written(found, shards)
    said = conditions(ready("x" * 1024), (), generation=1, now=NOW, risks=(), adjustment=Adjustment())
    wire = made.model_copy(update={"conditions": said}).to_wire()

    assert len(json.dumps(wire)) < 32 * 1024
    assert made.owned_shards == shards
    assert made.shards[0].owner == "p" * 63


def test_of_too_many_shards_the_assignments_are_left_out_first_and_then_the_last_ones() -> None:
    some = tuple(ShardStatus(id=i, owner="p" * 60) for i in range(200))
    many = tuple(ShardStatus(id=i, owner="p" * 60) for i in range(2000))

    assert listed(some) == some
    kept = listed(many)
    assert kept == many[: len(kept)]
    assert len(kept) > 200


def test_in_suspension_there_are_no_shards_to_an_autoscaler() -> None:
    made = written(known(4), 0)

    assert (made.effective_shard_count, made.replicas) == (0, 0)


def test_what_is_not_known_stays_as_it_was_said() -> None:
    before = written(known(4, backlog=5))

    after = written(Knowledge(), before=before)

    assert after == before


# Lag


def test_lag_is_summed_over_storage_topics() -> None:
    assert lag_of(known(2, 4, backlog=5, pointer=1)) == Lag(main=10, retry=0, dead_letter=0)
    assert lag_of(Knowledge()) is None


def lag(main: int, retry: int = 0, dead: int = 0, age: float = 0.0) -> Lag:
    return Lag(main=main, retry=retry, dead_letter=dead, observed_at=NOW - timedelta(seconds=age))


@pytest.mark.parametrize(
    ("before", "found", "is_written"),
    [
        (None, Lag(main=5), True),
        (lag(5, age=10), Lag(main=6), False),
        (lag(5, age=59), Lag(main=900), False),
        (lag(5, age=60), Lag(main=6), True),
        (lag(5, age=600), Lag(main=5), False),
        (lag(5, age=1), Lag(main=1006), True),
        (lag(10_000, age=1), Lag(main=14_000), False),
        (lag(10_000, age=1), Lag(main=15_001), True),
        (lag(10_000, age=1), Lag(main=4_999), True),
        (lag(0, age=1), Lag(main=1), True),
        (lag(5, age=1), Lag(main=0), True),
        (lag(5, age=1), Lag(main=5, retry=1), True),
        (lag(5, dead=1, age=1), Lag(main=5), True),
    ],
)
def test_lag_is_written_once_a_minute_or_when_much_changed(
    before: Lag | None, found: Lag, is_written: bool
) -> None:
    made = counted(before, found, NOW)

    assert (made is not before) is is_written
    if is_written:
        assert made == found.model_copy(update={"observed_at": NOW})


@pytest.mark.parametrize("backlog", [5, 6], ids=["the same lag", "another lag"])
def test_counts_of_groups_are_written_as_seldom_as_the_lag(backlog: int) -> None:
    before = written(known(4, backlog=5))
    found = known(4, backlog=backlog)
    busier = replace(found, workload=Workload((ShardLease(0, "pod-0", 1, 500, 3),)))

    soon = written(busier, before=before, now=NOW + timedelta(seconds=5))
    later = written(busier, before=before, now=NOW + timedelta(seconds=65))

    assert soon.blocked_groups == before.blocked_groups == 20
    assert later.blocked_groups == 500


def test_the_first_group_that_is_blocked_is_told_at_once() -> None:
    idle = known(4, backlog=5)
    before = written(replace(idle, workload=Workload((ShardLease(0, "pod-0", 1),))))

    after = written(idle, before=before, now=NOW + timedelta(seconds=1))

    assert (before.blocked_groups, after.blocked_groups) == (0, 20)


# The count


def test_a_count_that_was_raised_is_told() -> None:
    made = adjustment(wanted(3), known(4, shards=4))

    assert made is not None
    assert made.reason is Reason.RAISED_TO_FIT


def test_another_count_than_the_one_that_runs_is_told() -> None:
    made = adjustment(wanted(4), known(4, shards=2))

    assert made == Adjustment(
        Reason.RESHARD_PENDING, "4 shards are asked for, and 2 run; they go on as they are"
    )


@pytest.mark.parametrize("shards", [0, 2])
def test_a_count_that_is_as_asked_for_is_no_adjustment(shards: int) -> None:
    assert adjustment(wanted(shards), known(4, shards=2)) == Adjustment()


def test_nothing_is_said_of_the_count_before_the_topic_is_known() -> None:
    assert adjustment(wanted(3), Knowledge()) is None
    assert running_count(Knowledge()) is None


def test_the_condition_of_the_count_stays_while_nothing_is_known_of_it() -> None:
    def made(adjusted: Adjustment | None, before: tuple[Condition, ...] = ()) -> tuple[Condition, ...]:
        return conditions(ready(""), before, generation=1, now=NOW, adjustment=adjusted)

    first = made(Adjustment(Reason.RAISED_TO_FIT, "raised"))
    assert first[-1].type == "ShardCountAdjusted"
    assert (first[-1].status, first[-1].reason) == ("True", "RaisedToFit")
    assert made(None, first)[-1] == first[-1]
    assert made(Adjustment(), first)[-1].status == "False"
    assert "ShardCountAdjusted" not in {each.type for each in made(None)}


def test_queues_are_counted_by_their_own_descriptors() -> None:
    found = known(4)
    queue = topic(4)
    with_queue = replace(
        found,
        queues={Queue.RETRY: topics.Knowledge(descriptor=queue)},
        cursors={**found.cursors, name(0): CursorFacts((), 3)},
    )

    assert lag_of(with_queue) == Lag(main=3, retry=3, dead_letter=0)
