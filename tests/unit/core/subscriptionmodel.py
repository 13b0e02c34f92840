"""A Pulsar and a Kubernetes of values for Subscriptions: what each action does, one effect after the other.

Its queues are worlds of `pulsarmodel`, for they are planned as composite topics are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from millrace.core import compositetopicactions as topics
from millrace.core.compositetopics import Settled
from millrace.core.conditions import Verdict
from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.ownership import Owner, owner_properties
from millrace.core.positions import EMPTY
from millrace.core.routing import Routing
from millrace.core.shardleases import ShardLease
from millrace.core.subscriptionactions import (
    SHARD_COUNT,
    Action,
    ApplyWorkload,
    CreateCursors,
    CursorFacts,
    DeleteCursors,
    DeleteTable,
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
    StopWorkload,
    TableFacts,
    Wanted,
    Workload,
)
from millrace.core.subscriptions import Act, plan, queue_wanted
from tests.unit.core import pulsarmodel

OWNER = Owner("prod-eu", "shop", "billing", "uid-1", "Subscription")
OURS = owner_properties(OWNER)
DESCRIPTOR = "persistent://acme/shop/shop.orders-descriptor"
MOST_STEPS = 200


def name(index: int) -> str:
    return f"persistent://acme/shop/shop.orders-{index}"


def wanted(shards: int = 2, **fields: object) -> Wanted:
    basic = Wanted(OWNER, "acme/shop", DESCRIPTOR, "millrace.prod-eu.shop.billing", shards)
    return replace(basic, **fields)  # type: ignore[arg-type]


def topic(*partitions: int, pointer: int = 0, routing: Routing = Routing.SHARD_CONSISTENT) -> Descriptor:
    """The composite topic; what is before the pointer is sealed."""
    entries = [(name(index), count, False) for index, count in enumerate(partitions)]
    descriptor = initial("shop/orders", routing, entries)
    if pointer:
        descriptor = begin_switch(descriptor, pointer)
    for index in range(pointer):
        descriptor = complete_step(descriptor, [EMPTY] * partitions[index])
    return descriptor


@dataclass(frozen=True)
class Cursor:
    """Where it began, and what it has not acknowledged."""

    start: Start | int
    backlog: int = 0


@dataclass(frozen=True)
class World:
    """All that survives a crash."""

    main: Descriptor | None = None
    queues: Mapping[Queue, pulsarmodel.World] = field(
        default_factory=lambda: {queue: pulsarmodel.World() for queue in Queue}
    )
    cursors: Mapping[str, Mapping[int, Cursor]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settled_tables: frozenset[str] = frozenset()
    workload: ApplyWorkload | None = None
    holders: Mapping[int, str] = field(default_factory=dict)

    def cursor(self, name: str) -> Mapping[int, Cursor]:
        return self.cursors.get(name, {})

    def with_cursors(self, name: str, cursors: Mapping[int, Cursor]) -> World:
        return replace(self, cursors={**self.cursors, name: cursors})

    def with_backlog(self, name: str, backlog: int) -> World:
        return self.with_cursors(
            name, {partition: replace(each, backlog=backlog) for partition, each in self.cursor(name).items()}
        )

    def with_queue(self, queue: Queue, world: pulsarmodel.World) -> World:
        return replace(self, queues={**self.queues, queue: world})


def effects(world: World, known: Knowledge, action: Action, wanted: Wanted) -> Iterator[World]:
    """The worlds that an action leads through; nothing for one that changes nothing."""
    match action:
        case CreateCursors(topic, _, missing, start):
            for partition in missing:
                begun = {**world.cursor(topic), partition: Cursor(start)}
                yield (world := world.with_cursors(topic, begun))
        case OnQueue(queue, inner):
            inner_wanted = queue_wanted(wanted, known, queue)
            for after in pulsarmodel.effects(world.queues[queue], inner, inner_wanted):
                yield world.with_queue(queue, after)
        case EnsureTable(_, topic, count):
            if topic not in world.tables:
                properties = {**owner_properties(wanted.owner), SHARD_COUNT: str(count)}
                yield (world := replace(world, tables={**world.tables, topic: properties}))
            if topic not in world.settled_tables:
                yield replace(world, settled_tables=world.settled_tables | {topic})
        case RenewTable(_, topic):
            renewed = {**world.tables[topic], **owner_properties(wanted.owner)}
            yield replace(world, tables={**world.tables, topic: renewed})
        case ApplyWorkload():
            if world.workload != action:
                yield replace(world, workload=action)
        case StopWorkload():
            if world.workload is not None:
                yield replace(world, workload=None, holders={})
        case DeleteCursors(topic):
            if topic in world.cursors:
                yield replace(world, cursors={k: v for k, v in world.cursors.items() if k != topic})
        case DeleteTable(_, topic):
            if topic in world.tables:
                left = {k: v for k, v in world.tables.items() if k != topic}
                yield replace(world, tables=left, settled_tables=world.settled_tables - {topic})
        case ReadMain() | InspectCursors() | LookAtQueue() | InspectTable():
            return
        case _:
            assert_never(action)


def learn(before: World, after: World, known: Knowledge, action: Action, wanted: Wanted) -> Knowledge:
    """What the one who acted knows then."""
    match action:
        case ReadMain():
            return replace(known, main=after.main, main_read=True)
        case InspectCursors(topic, partitions) | CreateCursors(topic, partitions):
            found = after.cursor(topic)
            facts = CursorFacts(
                tuple(number for number in range(partitions) if number not in found),
                sum(cursor.backlog for cursor in found.values()),
            )
            return replace(known, cursors={**known.cursors, topic: facts})
        case LookAtQueue(queue, topic):
            inner, there = topics.Knowledge(), after.queues[queue]
            look = topics.InspectDescriptorTopic(topic)
            seen = pulsarmodel.learn(there, there, inner, look)
            assert seen.descriptor_topic is not None
            if seen.descriptor_topic.exists:
                inner = pulsarmodel.learn(there, there, seen, topics.ReadDescriptor(topic))
            elif wanted.published.get(queue):
                inner = seen
            return replace(known, queues={**known.queues, queue: inner})
        case OnQueue(queue, inner_action):
            learnt = pulsarmodel.learn(
                before.queues[queue], after.queues[queue], known.queues[queue], inner_action
            )
            return replace(known, queues={**known.queues, queue: learnt})
        case InspectTable(shard, topic) | RenewTable(shard, topic):
            found_table = TableFacts(topic in after.tables, after.tables.get(topic, {}))
            return replace(known, tables={**known.tables, shard: found_table})
        case EnsureTable(shard, topic):
            ensured = TableFacts(True, after.tables[topic], settled=True)
            return replace(known, tables={**known.tables, shard: ensured})
        case ApplyWorkload(count):
            leases = tuple(ShardLease(shard, after.holders.get(shard)) for shard in range(count))
            return replace(known, workload=Workload(leases))
        case StopWorkload():
            return replace(known, workload=Workload())
        case DeleteCursors(topic):
            return replace(known, cursors={**known.cursors, topic: CursorFacts()})
        case DeleteTable(shard):
            return replace(known, tables={**known.tables, shard: TableFacts(exists=False)})
        case _:
            assert_never(action)


@dataclass(frozen=True)
class Step:
    """One effect of one action."""

    before: World
    action: Action
    after: World
    verdict: Verdict


Planner = Callable[[Wanted, Knowledge], Act | Settled | None]


def run(world: World, wanted: Wanted, planner: Planner = plan) -> Iterator[Step | Settled]:
    """One reconciliation: every effect, and the plan's last word (a deletion has none)."""
    known = Knowledge()
    for _ in range(MOST_STEPS):
        step = planner(wanted, known)
        if step is None:
            return
        if isinstance(step, Settled):
            yield step
            return
        assert step.actions, "a plan without actions would never end"
        for action in step.actions:
            before = world
            for after in effects(before, known, action, wanted):
                yield Step(world, action, after, step.verdict)
                world = after
            if world is before:
                yield Step(world, action, world, step.verdict)
            known = learn(before, world, known, action, wanted)
    raise AssertionError(f"no end after {MOST_STEPS} steps: {step}")


def outcome(world: World, wanted: Wanted, planner: Planner = plan) -> tuple[World, Verdict, list[Action]]:
    """Where a reconciliation that is not interrupted ends, with what verdict, and what it did."""
    actions: list[Action] = []
    for step in run(world, wanted, planner):
        if isinstance(step, Settled):
            return world, step.verdict, actions
        if not actions or actions[-1] is not step.action:
            actions.append(step.action)
        world = step.after
    raise AssertionError("a plan always ends in a verdict")


def histories(world: World, wanted: Wanted, planner: Planner = plan) -> Iterator[Step | Settled]:
    """Every step of every history in which the process dies any number of times, after any effect."""
    seen: set[str] = set()
    waiting = [world]
    while waiting:
        start = waiting.pop()
        if repr(start) in seen:
            continue
        seen.add(repr(start))
        for step in run(start, wanted, planner):
            yield step
            if isinstance(step, Step):
                waiting.append(step.after)


def there(shards: int, *partitions: int, pointer: int = 0) -> World:
    """A subscription that was created, with every shard held by a pod."""
    world, _, _ = outcome(World(topic(*partitions, pointer=pointer)), wanted(shards))
    count = world.workload.shard_count if world.workload else 0
    return replace(world, holders={shard: f"pod-{shard}" for shard in range(count)})
