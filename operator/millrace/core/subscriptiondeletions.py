"""What to do next about a Subscription that is being deleted with `deletionPolicy: Delete`.

The pods go first: a consumer that lives would make its cursor anew. The first state table goes last of the
tables: as long as any of them is left, it says how many there are. A topic is deleted only if it is ours by
its properties.
"""

from __future__ import annotations

from millrace.api.reasons import Reason
from millrace.core.compositetopicdeletions import plan_deletion as plan_topic_deletion
from millrace.core.conditions import Verdict
from millrace.core.ownership import Ownership, classify
from millrace.core.subscriptionactions import (
    Action,
    DeleteCursors,
    DeleteTable,
    InspectTable,
    Knowledge,
    LookAtQueue,
    OnQueue,
    Queue,
    ReadMain,
    StopWorkload,
    TableFacts,
    Wanted,
)
from millrace.core.subscriptions import Act, queue_wanted, running_count


def plan_deletion(wanted: Wanted, known: Knowledge) -> Act | None:
    """The next actions; None when nothing of ours is left and the finalizer may go."""
    for stage in (_workload, _cursors, _queues, _tables):
        step = stage(wanted, known)
        if step is not None:
            return step
    return None


def _workload(wanted: Wanted, known: Knowledge) -> Act | None:
    if known.workload is not None:
        return None
    return _act(StopWorkload(), doing=f"waiting for the pods of {wanted.owner.name} to stop")


def _cursors(wanted: Wanted, known: Knowledge) -> Act | None:
    if not known.main_read:
        return _act(ReadMain(wanted.descriptor_topic), doing="reading the topic's descriptor")
    storage_topics = () if known.main is None else known.main.storage_topics
    left = [DeleteCursors(topic.topic) for topic in storage_topics if topic.topic not in known.cursors]
    return _act(*left, doing="deleting the cursors on the topic") if left else None


def _queues(wanted: Wanted, known: Knowledge) -> Act | None:
    for queue in Queue:
        inner = known.queues.get(queue)
        if inner is None:
            look = LookAtQueue(queue, wanted.queue_descriptor(queue))
            return _act(look, doing=f"looking for {look.topic}")
        step = plan_topic_deletion(queue_wanted(wanted, known, queue), inner)
        if step is not None:
            return Act(tuple(OnQueue(queue, action) for action in step.actions), step.verdict)
    return None


def _tables(wanted: Wanted, known: Knowledge) -> Act | None:
    if 0 not in known.tables:
        return _act(InspectTable(0, wanted.state_topic(0)), doing="looking for the shards' state")
    count = running_count(known) or 1
    unknown = [
        InspectTable(shard, wanted.state_topic(shard)) for shard in range(count) if shard not in known.tables
    ]
    if unknown:
        return _act(*unknown, doing="looking for the shards' state")
    ours = [
        DeleteTable(shard, wanted.state_topic(shard))
        for shard, facts in known.tables.items()
        if _may_delete(wanted, facts)
    ]
    others = [action for action in ours if action.shard != 0]
    if others or ours:
        return _act(*(others or ours), doing="deleting the shards' state")
    return None


def _may_delete(wanted: Wanted, facts: TableFacts) -> bool:
    ours = (Ownership.OURS, Ownership.OURS_OTHER_UID)
    return facts.exists and classify(facts.properties, wanted.owner) in ours


def _act(*actions: Action, doing: str) -> Act:
    return Act(actions, Verdict(Reason.DELETING, doing))
