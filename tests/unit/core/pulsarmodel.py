"""A Pulsar of values: what the actions of a plan do to it, one irrevocable effect after the other.

`run` is the reconciler without I/O. It yields the world after every single effect, so that a test can let
the process die there: knowledge is dropped, and the world is all that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from millrace.core.compositetopicactions import (
    Action,
    AdoptTopic,
    ClaimDescriptorTopic,
    CopySubscriptions,
    CreateStorageTopic,
    DeleteTopic,
    InspectDescriptorTopic,
    InspectPartitions,
    InspectStorageTopic,
    Knowledge,
    PartitionFacts,
    PublishDescriptor,
    ReadDescriptor,
    RenewOwner,
    SealPartitions,
    SettlePolicies,
    SwitchFacts,
    TopicFacts,
    Wanted,
    WantedTopic,
)
from millrace.core.compositetopics import Act, Settled, plan
from millrace.core.conditions import Verdict
from millrace.core.descriptor import Descriptor, begin_switch
from millrace.core.ownership import Owner, Ownership, classify, owner_properties
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import Routing

MOST_STEPS = 100

OWNER = Owner("prod-eu", "shop", "orders", "uid-1")
OURS = owner_properties(OWNER)
EARLIER = owner_properties(replace(OWNER, uid="uid-0"))
FOREIGN = owner_properties(Owner("prod-us", "store", "payments", "uid-9"))
DESCRIPTOR = "persistent://acme/shop/shop.orders-descriptor"


def name(index: int) -> str:
    """The storage topic of this index."""
    return f"persistent://acme/shop/shop.orders-{index}"


def wanted(*partitions: int, pointer: int = 0, generation: int = 0, adopt: tuple[int, ...] = ()) -> Wanted:
    """A spec with these storage topics; `adopt` has the indices of those that are to be adopted."""
    topics = tuple(WantedTopic(i, name(i), count, adopt=i in adopt) for i, count in enumerate(partitions))
    return Wanted(OWNER, DESCRIPTOR, Routing.SHARD_CONSISTENT, topics, pointer, generation)


@dataclass(frozen=True)
class Topic:
    """`partitions` None: not partitioned. `entries` counts what each partition holds."""

    partitions: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[int, ...] = ()
    terminated: frozenset[int] = frozenset()
    subscriptions: frozenset[str] = frozenset()
    settled: bool = False

    @classmethod
    def of(cls, *entries: int, **fields: object) -> Topic:
        """A partitioned topic with so much in each partition."""
        return replace(cls(len(entries), entries=entries), **fields)  # type: ignore[arg-type]

    def end(self, partition: int) -> EntryId:
        """Where a partition ends, if it ended now."""
        count = self.entries[partition]
        return EntryId(70 + partition, count - 1) if count else EMPTY

    @property
    def closed(self) -> bool:
        """Whether every partition is terminated."""
        return self.terminated == frozenset(range(self.partitions or 0))


@dataclass(frozen=True)
class World:
    """All that survives a crash: topics, and everything ever published in the descriptor topic."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    published: tuple[Descriptor, ...] = ()

    @property
    def descriptor(self) -> Descriptor | None:
        """The newest."""
        return self.published[-1] if self.published else None

    def having(self, name: str, topic: Topic | None) -> World:
        """The same with this topic, or without it."""
        others = {there: each for there, each in self.topics.items() if there != name}
        return replace(self, topics=others if topic is None else {**others, name: topic})

    def changed(self, name: str, **fields: object) -> World:
        """The same with these fields of a topic replaced."""
        return self.having(name, replace(self.topics[name], **fields))  # type: ignore[arg-type]


class Stale(Exception):  # noqa: N818 - it is what happened
    """Somebody else published first."""


def effects(world: World, action: Action, wanted: Wanted) -> Iterator[World]:
    """The worlds that an action leads through; nothing for one that changes nothing."""
    ours = owner_properties(wanted.owner)
    match action:
        case ClaimDescriptorTopic(name):
            topic = world.topics.get(name)
            if topic is None:
                topic = Topic(None, ours)
                yield (world := world.having(name, topic))
            if classify(topic.properties, wanted.owner) in (Ownership.OURS, Ownership.OURS_OTHER_UID):
                yield world.changed(name, settled=True)
        case CreateStorageTopic(_, name, partitions):
            if name not in world.topics:
                yield world.having(name, Topic.of(*[0] * partitions, properties=ours))
        case AdoptTopic(_, name):
            properties = owner_properties(wanted.owner, adopted=True)
            yield world.changed(name, properties={**world.topics[name].properties, **properties})
        case RenewOwner(_, name):
            yield world.changed(name, properties={**world.topics[name].properties, **ours})
        case SettlePolicies(_, name):
            yield world.changed(name, settled=True)
        case PublishDescriptor(_, descriptor, expected):
            if expected != (world.descriptor.generation if world.descriptor else 0):
                raise Stale
            yield replace(world, published=(*world.published, descriptor))
        case CopySubscriptions(_, source, _, target):
            for name in sorted(world.topics[source].subscriptions - world.topics[target].subscriptions):
                world = world.changed(target, subscriptions=world.topics[target].subscriptions | {name})
                yield world
        case SealPartitions(_, name, partitions):
            for partition in sorted(set(range(partitions)) - world.topics[name].terminated):
                world = world.changed(name, terminated=world.topics[name].terminated | {partition})
                yield world
        case DeleteTopic(name):
            if name in world.topics:
                gone = world.having(name, None)
                yield replace(gone, published=()) if name == wanted.descriptor_topic else gone
        case InspectDescriptorTopic() | ReadDescriptor() | InspectStorageTopic() | InspectPartitions():
            return
        case _:
            assert_never(action)


def learn(before: World, after: World, known: Knowledge, action: Action) -> Knowledge:
    """What the process knows once the action is done."""
    match action:
        case ClaimDescriptorTopic(name):
            created = name not in before.topics
            facts = _facts(after, name, created=created, settled=after.topics[name].settled)
            return replace(known, descriptor_topic=facts, descriptor_read=known.descriptor_read or created)
        case InspectDescriptorTopic(name):
            settled = name in after.topics and after.topics[name].settled
            return replace(known, descriptor_topic=_facts(after, name, settled=settled))
        case ReadDescriptor() | PublishDescriptor():
            return replace(known, descriptor=after.descriptor, descriptor_read=True)
        case CreateStorageTopic(index, name):
            return _with_topic(known, index, _facts(after, name, created=name not in before.topics))
        case InspectStorageTopic(index, name):
            return _with_topic(known, index, _facts(after, name))
        case AdoptTopic(index, name) | RenewOwner(index, name):
            if index is None:
                assert known.descriptor_topic is not None
                renewed = replace(known.descriptor_topic, properties=after.topics[name].properties)
                return replace(known, descriptor_topic=renewed)
            facts = replace(known.topics[index], properties=after.topics[name].properties)
            return _with_topic(known, index, facts)
        case SettlePolicies(index):
            return _with_topic(known, index, replace(known.topics[index], settled=True))
        case InspectPartitions(index, name):
            topic = after.topics[name]
            found = PartitionFacts(holds_data=any(topic.entries), terminated=len(topic.terminated))
            return replace(known, partitions={**known.partitions, index: found})
        case CopySubscriptions(index, again=again):
            copied = {"cursors_copied_again": True} if again else {"cursors_copied": True}
            return _with_switch(known, index, **copied)
        case SealPartitions(index, name, partitions):
            ends = tuple(after.topics[name].end(partition) for partition in range(partitions))
            return _with_switch(known, index, sealed=ends)
        case DeleteTopic(_, _, index):
            gone = TopicFacts(exists=False)
            return replace(known, descriptor_topic=gone) if index is None else _with_topic(known, index, gone)
        case _:
            assert_never(action)


def _facts(world: World, name: str, *, created: bool = False, settled: bool = False) -> TopicFacts:
    topic = world.topics.get(name)
    if topic is None:
        return TopicFacts(exists=False)
    return TopicFacts(True, topic.partitions, topic.properties, created=created, settled=settled)


def _with_topic(known: Knowledge, index: int, facts: TopicFacts) -> Knowledge:
    return replace(known, topics={**known.topics, index: facts})


def _with_switch(known: Knowledge, index: int, **learnt: object) -> Knowledge:
    facts = replace(known.switches.get(index, SwitchFacts()), **learnt)  # type: ignore[arg-type]
    return replace(known, switches={**known.switches, index: facts})


@dataclass(frozen=True)
class Step:
    """One effect of one action; `verdict` is what the conditions said meanwhile."""

    before: World
    action: Action
    after: World
    verdict: Verdict


Planner = Callable[[Wanted, Knowledge], Act | Settled | None]
Meanwhile = Callable[[World, Action], World]


def run(
    world: World,
    wanted: Wanted,
    *,
    planner: Planner = plan,
    reverse: bool = False,
    meanwhile: Meanwhile = lambda world, _: world,
) -> Iterator[Step | Settled]:
    """One reconciliation: every effect, and the plan's last word (a deletion has none).

    `reverse` carries out each plan's actions in the other order; `meanwhile` is what others do to the
    world after each action.
    """
    known = Knowledge()
    for _ in range(MOST_STEPS):
        step = planner(wanted, known)
        if step is None:
            return
        if isinstance(step, Settled):
            yield step
            return
        assert step.actions, "a plan without actions would never end"
        for action in reversed(step.actions) if reverse else step.actions:
            before = world
            for after in effects(before, action, wanted):
                yield Step(world, action, after, step.verdict)
                world = after
            if world is before:
                yield Step(world, action, world, step.verdict)
            known = learn(before, world, known, action)
            others = meanwhile(world, action)
            if others is not world:
                yield Step(world, action, others, step.verdict)
                world = others
    raise AssertionError(f"no end after {MOST_STEPS} steps: {step}")


def outcome(
    world: World, wanted: Wanted, *, reverse: bool = False, meanwhile: Meanwhile = lambda world, _: world
) -> tuple[World, Verdict, list[Action]]:
    """Where a reconciliation that is not interrupted ends, with what verdict, and what it did."""
    actions: list[Action] = []
    for step in run(world, wanted, reverse=reverse, meanwhile=meanwhile):
        if isinstance(step, Settled):
            return world, step.verdict, actions
        if not actions or actions[-1] is not step.action:
            actions.append(step.action)
        world = step.after
    raise AssertionError("a plan always ends in a verdict")


def histories(world: World, wanted: Wanted, planner: Planner = plan) -> Iterator[Step | Settled]:
    """Every step of every history in which the process dies any number of times, after any effect.

    Worlds that were reached before are not run again, so this ends; every history ends in a verdict.
    """
    seen: set[str] = set()
    waiting = [world]
    while waiting:
        start = waiting.pop()
        if repr(start) in seen:
            continue
        seen.add(repr(start))
        for step in run(start, wanted, planner=planner):
            yield step
            if isinstance(step, Step):
                waiting.append(step.after)


# Where the tests begin


def there(*partitions: int) -> World:
    """A composite topic that was created and is Ready."""
    return outcome(World(), wanted(*partitions))[0]


def in_use(*partitions: int) -> World:
    """The same with subscriptions and messages in the first storage topic (one partition stays empty)."""
    entries = (0, *range(5, 4 + partitions[0]))
    return there(*partitions).changed(name(0), entries=entries, subscriptions=frozenset({"billing", "audit"}))


def announced(world: World, target: int) -> World:
    """The same after the announcement of a switch."""
    assert world.descriptor is not None
    return replace(world, published=(*world.published, begin_switch(world.descriptor, target)))


def half_sealed(*partitions: int) -> World:
    """The process died while it switched to the second storage topic; producers wait."""
    return announced(in_use(*partitions), 1).changed(name(0), terminated=frozenset({0}))
