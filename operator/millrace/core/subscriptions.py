"""What to do next about a Subscription: a pure function of what is wanted and what is known so far.

The same shape as `compositetopics.plan`: the next actions, or a verdict; knowledge starts empty in every
reconciliation, and every action may be repeated. The order is what protects the data:
- cursors on the topic come first, the newest storage topic before the older ones: a switch of the topic
  copies what it finds, so nothing is produced where no cursor is;
- queues and their cursors are there before a shard is, for a parked message without a cursor would be gone;
- the number of shards is decided once, in the request that creates the first state table, and is read from
  there ever after: two counts at once would deliver a group twice over;
- pods come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.api.reasons import Reason
from millrace.core import compositetopicactions as topics
from millrace.core import compositetopics, names
from millrace.core.compositetopics import Settled
from millrace.core.conditions import Verdict, ready
from millrace.core.descriptor import Descriptor
from millrace.core.ownership import Ownership, classify, owner_named_in
from millrace.core.routing import Layout, Routing, next_layout, shard_consistent
from millrace.core.shardcounts import ShardCount, fitted
from millrace.core.subscriptionactions import (
    Action,
    ApplyWorkload,
    CreateCursors,
    EnsureTable,
    InspectCursors,
    InspectTable,
    Knowledge,
    LookAtQueue,
    OnQueue,
    Queue,
    ReadMain,
    RenewTable,
    Start,
    TableFacts,
    Wanted,
)


@dataclass(frozen=True, slots=True)
class Act:
    """Do these, in any order, and ask again; `verdict` is what the conditions say meanwhile."""

    actions: tuple[Action, ...]
    verdict: Verdict


Plan = Act | Settled


def plan(wanted: Wanted, known: Knowledge) -> Plan:
    """The next actions, or the verdict."""
    for stage in (_main, _main_cursors, _queues, _queue_cursors, _tables, _workload):
        step = stage(wanted, known)
        if step is not None:
            return step
    return Settled(_verdict(wanted, known))


def _creating(message: str) -> Verdict:
    return Verdict(Reason.CREATING, message)


# The topic


def _main(wanted: Wanted, known: Knowledge) -> Plan | None:
    if not known.main_read:
        return Act((ReadMain(wanted.descriptor_topic),), _creating("reading the topic's descriptor"))
    if known.main is None:
        missing = f"{wanted.descriptor_topic} holds no descriptor yet"
        return Settled(Verdict(Reason.WAITING_FOR_TOPIC, missing))
    return None


def _main_cursors(wanted: Wanted, known: Knowledge) -> Plan | None:
    main = known.main
    assert main is not None
    unknown = _uninspected(known, main)
    if unknown:
        return Act(unknown, _creating("looking for the cursors on the topic"))
    for index in reversed(range(len(main.storage_topics))):
        topic = main.storage_topics[index]
        missing = known.cursors[topic.topic].missing
        if missing:
            start = _start(wanted, known, main, index)
            create = CreateCursors(topic.topic, topic.layout.partitions, missing, start)
            # One at a time: the newest topic first.
            return Act((create,), _creating(f"creating cursors on {topic.topic}"))
    return None


def _uninspected(known: Knowledge, descriptor: Descriptor) -> tuple[Action, ...]:
    return tuple(
        InspectCursors(topic.topic, topic.layout.partitions)
        for topic in descriptor.storage_topics
        if topic.topic not in known.cursors
    )


def _start(wanted: Wanted, known: Knowledge, main: Descriptor, index: int) -> Start | int:
    """Where a missing cursor begins. `startFrom` is about the moment of creation, not about lost cursors."""
    if wanted.begun or index > main.produce_pointer:
        return Start.EARLIEST
    # A cursor here or further back means that this one belongs to what follows, or was lost.
    for topic in main.storage_topics[: index + 1]:
        if len(known.cursors[topic.topic].missing) < topic.layout.partitions:
            return Start.EARLIEST
    return wanted.start


def is_drained(known: Knowledge, main: Descriptor, index: int) -> bool:
    """Whether a storage topic is sealed and everything in it is delivered or parked.

    An empty backlog alone means nothing: more may be produced.
    """
    facts = known.cursors.get(main.storage_topics[index].topic)
    return index < main.produce_pointer and facts is not None and not facts.missing and facts.backlog == 0


def undrained(known: Knowledge) -> tuple[int, ...]:
    """The storage topics, by index, that have or may get something to deliver."""
    main = known.main
    if main is None:
        return ()
    return tuple(index for index in range(main.produce_pointer + 1) if not is_drained(known, main, index))


# Queues


def queue_layout(wanted: Wanted, main: Descriptor, queue: Queue) -> Layout:
    """How a new queue is laid out: as the topic is now, so that every shard count that fits one fits both."""
    current = main.produce_topic.layout
    partitions = wanted.queue_partitions.get(queue, current.partitions)
    if current.routing is Routing.UNKNOWN:
        return Layout(partitions, 1, main.routing)
    return current if partitions == current.partitions else next_layout(current, partitions, main.routing)


def queue_wanted(wanted: Wanted, known: Knowledge, queue: Queue) -> topics.Wanted:
    """A queue as a composite topic: what its descriptor says, or what it is to be if there is none."""
    found = known.queues.get(queue, topics.Knowledge()).descriptor
    local = queue.of(wanted.owner.name)
    first = names.storage_topic_name(wanted.pulsar_namespace, wanted.owner.namespace, local, 0)
    if found is not None:
        layout, pointer = found.storage_topics[0].layout, found.produce_pointer
        entries = tuple(
            topics.WantedTopic(index, topic.topic, topic.layout.partitions)
            for index, topic in enumerate(found.storage_topics)
        )
    else:
        layout, pointer = Layout(1), 0
        if known.main is not None:
            layout = queue_layout(wanted, known.main, queue)
        entries = (topics.WantedTopic(0, first, layout.partitions),)
    return topics.Wanted(
        owner=wanted.owner,
        descriptor_topic=wanted.queue_descriptor(queue),
        routing=layout.routing if found is None else found.routing,
        topics=entries,
        produce_pointer=pointer,
        published_generation=wanted.published.get(queue, 0),
        scale_factor=layout.scale_factor,
        local_name=local,
    )


def _queues(wanted: Wanted, known: Knowledge) -> Plan | None:
    for queue in Queue:
        inner = known.queues.get(queue)
        if inner is None:
            look = LookAtQueue(queue, wanted.queue_descriptor(queue))
            return Act((look,), _creating(f"looking for the {_words(queue)}"))
        if inner.descriptor is None and (mismatch := _mismatch(wanted, known, queue)) is not None:
            return Settled(mismatch)
        step = compositetopics.plan(queue_wanted(wanted, known, queue), inner)
        about = f"the {_words(queue)}: {step.verdict.message}"
        if isinstance(step, compositetopics.Act):
            actions = tuple(OnQueue(queue, action) for action in step.actions)
            return Act(actions, Verdict(step.verdict.reason, about))
        if step.verdict.reason is not Reason.READY:
            return Settled(Verdict(step.verdict.reason, about))
    return None


def _words(queue: Queue) -> str:
    return "retry queue" if queue is Queue.RETRY else "dead-letter queue"


def _mismatch(wanted: Wanted, known: Knowledge, queue: Queue) -> Verdict | None:
    main = known.main
    assert main is not None
    current = main.produce_topic.layout
    count = shard_count(wanted, known).effective
    if queue not in wanted.queue_partitions or not count or current.routing is Routing.UNKNOWN:
        return None
    if shard_consistent(current, queue_layout(wanted, main, queue), count):
        return None
    return Verdict(
        Reason.QUEUE_MISMATCH,
        f"with {count} shards and {queue.field} {wanted.queue_partitions[queue]} a group would be on one "
        f"shard in the topic ({current.partitions} partitions) and on another in its {_words(queue)}; leave "
        f"{queue.field} out, or set it to {current.partitions}, in a Subscription of another name",
    )


def _queue_cursors(wanted: Wanted, known: Knowledge) -> Plan | None:
    found = [known.queues[queue].descriptor for queue in Queue]
    described = [descriptor for descriptor in found if descriptor is not None]
    unknown = tuple(action for descriptor in described for action in _uninspected(known, descriptor))
    if unknown:
        return Act(unknown, _creating("looking for the cursors on the queues"))
    missing = tuple(
        CreateCursors(topic.topic, topic.layout.partitions, facts.missing, Start.EARLIEST)
        for descriptor in described
        for topic in descriptor.storage_topics
        if (facts := known.cursors[topic.topic]).missing
    )
    if not missing:
        return None
    return Act(missing, _creating(f"creating the cursors {wanted.cursor} on the queues"))


# Shards


def shard_count(wanted: Wanted, known: Knowledge) -> ShardCount:
    """What is asked for, made to fit the storage topics that are not drained."""
    main = known.main
    assert main is not None
    partitions = [main.storage_topics[index].layout.partitions for index in undrained(known)]
    return fitted(wanted.shard_count, partitions, allow_uneven=wanted.allow_uneven)


def running_count(known: Knowledge) -> int | None:
    """How many shards there are, once that is decided; also while they are suspended."""
    first = known.tables.get(0)
    return None if first is None else first.shard_count


def _tables(wanted: Wanted, known: Knowledge) -> Plan | None:
    first = known.tables.get(0)
    if first is None:
        look = InspectTable(0, wanted.state_topic(0))
        return Act((look,), _creating("looking for the shards' state"))
    if not first.exists and shard_count(wanted, known).effective == 0:
        return None  # suspended before it ever ran: how many there will be is not decided
    step = _table(wanted, known, 0, first)
    if step is not None:
        return step if isinstance(step, Settled) else Act((step,), _creating("preparing the shards' state"))
    count = running_count(known)
    assert count is not None
    unknown = tuple(
        InspectTable(shard, wanted.state_topic(shard)) for shard in range(count) if shard not in known.tables
    )
    if unknown:
        return Act(unknown, _creating("looking for the shards' state"))
    actions: list[Action] = []
    for shard in range(1, count):
        step = _table(wanted, known, shard, known.tables[shard])
        if isinstance(step, Settled):
            return step
        if step is not None:
            actions.append(step)
    return Act(tuple(actions), _creating("preparing the shards' state")) if actions else None


def _table(wanted: Wanted, known: Knowledge, shard: int, facts: TableFacts) -> Action | Settled | None:
    topic = wanted.state_topic(shard)
    decided = running_count(known)
    if facts.refused:
        reason = Reason.TOPIC_EXISTS
        return Settled(Verdict(reason, f"{topic} exists, holds something and carries no owner; remove it"))
    if facts.exists:
        match classify(facts.properties, wanted.owner):
            case Ownership.FOREIGN:
                owner = owner_named_in(facts.properties)
                return Settled(Verdict(Reason.FOREIGN_OWNER, f"{topic} belongs to {owner}; it is left alone"))
            case Ownership.OURS_OTHER_UID:
                return RenewTable(shard, topic)
            case Ownership.OURS if decided is None:
                return Settled(
                    Verdict(
                        Reason.DESCRIPTOR_UNREADABLE,
                        f"{topic} does not say how many shards there are: its property was removed. Restore "
                        "it, or delete the Subscription and its topics",
                    )
                )
            case _:
                pass
    if facts.settled:
        return None
    return EnsureTable(shard, topic, decided or shard_count(wanted, known).effective)


def _workload(wanted: Wanted, known: Knowledge) -> Plan | None:
    count = running_count(known)
    if count is None or known.workload is not None:
        return None
    apply = ApplyWorkload(count, suspended=wanted.shard_count == 0)
    return Act((apply,), _creating("applying the shards' objects"))


# The verdict


def barrier(known: Knowledge) -> int | None:
    """The first storage topic, by index, that the shards cannot go on to as they are.

    Not from the one before it, or not because a group that is parked would be on another shard in its queue.
    """
    main, count = known.main, running_count(known)
    if main is None or count is None:
        return None
    queues = [inner.descriptor for inner in known.queues.values() if inner.descriptor is not None]
    parked = [descriptor.produce_topic.layout for descriptor in queues]
    waiting = undrained(known)
    for index in waiting:
        layout = main.storage_topics[index].layout
        before = [main.storage_topics[index - 1].layout] if index - 1 in waiting else []
        # What an adopted topic holds is parked by the shard that read it, whatever its routing was.
        beside = parked if layout.routing is not Routing.UNKNOWN else []
        if not all(shard_consistent(other, layout, count) for other in (*before, *beside)):
            return index
    return None


def _verdict(wanted: Wanted, known: Knowledge) -> Verdict:
    assert known.main is not None
    count = running_count(known)
    if wanted.shard_count == 0 or count is None:
        return Verdict(
            Reason.SUSPENDED,
            f"shardCount is 0: nothing of {known.main.name} is delivered, and nothing is lost",
        )
    blocking = barrier(known)
    if blocking is not None:
        topic = known.main.storage_topics[blocking]
        return Verdict(
            Reason.BARRIER_NEEDED,
            f"{topic.topic} ({topic.layout.partitions} partitions) puts groups on other shards than what "
            f"came before, with {count} shards: they stop at the end of that. Nothing is lost; it takes a "
            "reshard to go on",
        )
    workload = known.workload
    assert workload is not None
    owned = sum(1 for _ in _owned(known, count))
    if owned < count:
        return Verdict(
            Reason.STARTING_SHARDS,
            f"{owned} of {count} shards are held by a pod; {workload.pods_available} of "
            f"{workload.pods_wanted} pods are available",
        )
    return ready(f"{count} {'shard delivers' if count == 1 else 'shards deliver'} {known.main.name}")


def _owned(known: Knowledge, count: int) -> Iterator[int]:
    assert known.workload is not None
    for lease in known.workload.leases:
        if lease.holder is not None and lease.shard < count:
            yield lease.shard
