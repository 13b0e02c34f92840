"""What to do next about a CompositeTopic: a pure function of what is wanted and what is known so far.

`plan` looks at the knowledge and answers with the next actions, or with a verdict. The reconciler carries
the actions out, adds what they revealed to the knowledge, and asks again. Knowledge starts empty in every
reconciliation, so it does not matter where an earlier one was interrupted: nothing is remembered but what
Pulsar itself holds. Every action may be repeated; each says what holds if the process dies right after it.

A new object is created first and looked at only where something was there already, which halves the calls
to Pulsar. The order is what protects the data:
- the descriptor topic comes first, because it is the claim to the name, and may hold a truth that the spec
  contradicts;
- no storage topic is created before that truth is known, and none is published before it is there and
  protected;
- a switch is announced before the first partition is terminated, and completed after the last one is;
- a switch that was announced is finished before anything new is begun, for producers wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.api.reasons import Reason
from millrace.core import descriptor as descriptors
from millrace.core.compositetopicactions import (
    Action,
    AdoptTopic,
    ClaimDescriptorTopic,
    CopySubscriptions,
    CreateStorageTopic,
    InspectDescriptorTopic,
    InspectPartitions,
    InspectStorageTopic,
    Knowledge,
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
from millrace.core.conditions import Verdict, ready
from millrace.core.descriptor import Descriptor, DescriptorError
from millrace.core.ownership import Ownership, classify, owner_named_in
from millrace.core.routing import Routing


@dataclass(frozen=True, slots=True)
class Act:
    """Do these, in any order, and ask again; `verdict` is what the conditions say meanwhile."""

    actions: tuple[Action, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Settled:
    """There is nothing to do: all is as wanted, or somebody else has to act first."""

    verdict: Verdict


Plan = Act | Settled


def plan(wanted: Wanted, known: Knowledge) -> Plan:
    """The next actions, or the verdict."""
    for stage in (_descriptor_topic, _descriptor, _storage_topics, _publication, _switch):
        step = stage(wanted, known)
        if step is not None:
            return step
    assert known.descriptor is not None
    return Settled(_ready(known.descriptor))


def _ready(descriptor: Descriptor) -> Verdict:
    topic = descriptor.produce_topic
    if topic.layout.routing is Routing.UNKNOWN:
        return ready(
            f"{topic.topic} was adopted with data in it, so its routing is unknown: it can be read; to "
            "write, append a storage topic and raise producePointer to it"
        )
    return ready(f"producers write to {topic.topic} ({topic.layout.partitions} partitions)")


def _creating(message: str) -> Verdict:
    return Verdict(Reason.CREATING, message)


def _descriptor_topic(wanted: Wanted, known: Knowledge) -> Plan | None:  # noqa: PLR0911 - a table
    topic, facts = wanted.descriptor_topic, known.descriptor_topic
    doing = _creating(f"preparing the descriptor topic {topic}")
    if facts is None:
        if wanted.published_generation:
            return Act((InspectDescriptorTopic(topic),), doing)
        return Act((ClaimDescriptorTopic(topic),), doing)
    if not facts.exists:
        return Settled(_descriptor_lost(wanted))
    match classify(facts.properties, wanted.owner):
        case Ownership.FOREIGN:
            return Settled(_foreign(topic, facts))
        case Ownership.UNOWNED:
            return Settled(
                Verdict(
                    Reason.TOPIC_EXISTS,
                    f"{topic} exists, holds something and carries no owner; it is left alone. Remove it, or "
                    "rename this object",
                )
            )
        case Ownership.OURS_OTHER_UID:
            return Act((RenewOwner(None, topic),), doing)
        case Ownership.OURS:
            # An existing topic of ours may lack its policies: an earlier attempt died, or somebody removed
            # them.
            return None if facts.settled else Act((ClaimDescriptorTopic(topic),), doing)


def _descriptor_lost(wanted: Wanted) -> Verdict:
    return Verdict(
        Reason.TOPIC_VANISHED,
        f"the descriptor (generation {wanted.published_generation}) is no longer in "
        f"{wanted.descriptor_topic}: the topic was deleted or emptied. Restore it; or, if producePointer was "
        "never raised, delete this object with deletionPolicy Retain and apply it again to have a new "
        "descriptor written",
    )


def _descriptor(wanted: Wanted, known: Knowledge) -> Plan | None:
    if not known.descriptor_read:
        return Act((ReadDescriptor(wanted.descriptor_topic),), _creating("reading the descriptor"))
    if known.descriptor is None:
        return Settled(_descriptor_lost(wanted)) if wanted.published_generation else None
    conflicts = list(_contradictions(wanted, known.descriptor))
    if conflicts:
        return Settled(
            Verdict(
                Reason.DESCRIPTOR_CONFLICT,
                f"the spec contradicts what is published in {wanted.descriptor_topic}: "
                f"{'; '.join(conflicts)}. Nothing was changed: correct the spec",
            )
        )
    return None


def _contradictions(wanted: Wanted, published: Descriptor) -> Iterator[str]:
    if wanted.routing is not published.routing:
        yield f"routing is {published.routing}, not {wanted.routing}"
    if len(wanted.topics) < len(published.storage_topics):
        yield f"there are {len(published.storage_topics)} storage topics, not {len(wanted.topics)}"
    for topic, there in zip(wanted.topics, published.storage_topics, strict=False):
        if topic.topic != there.topic:
            yield f"storage topic {topic.index} is {there.topic}, not {topic.topic}"
        elif topic.partitions != there.layout.partitions:
            count = there.layout.partitions
            yield f"storage topic {topic.index} has {count} partitions, not {topic.partitions}"
    pointer = wanted.produce_pointer
    if published.switching_to is not None and pointer < published.switching_to:
        yield f"a switch to producePointer {published.switching_to} has begun, so it cannot be {pointer}"
    elif pointer < published.produce_pointer:
        yield f"producePointer is {published.produce_pointer} already, and cannot be {pointer}"


def _due(wanted: Wanted, known: Knowledge) -> tuple[WantedTopic, ...]:
    """Entries to see to now: one appended during a switch may be in somebody else's hands, and must wait."""
    published = known.descriptor
    if published is None or published.switching_to is None:
        return wanted.topics
    return wanted.topics[: len(published.storage_topics)]


def _storage_topics(wanted: Wanted, known: Knowledge) -> Plan | None:
    actions: list[Action] = []
    indices: list[int] = []
    for topic in _due(wanted, known):
        step = _storage_topic(wanted, known, topic)
        # A topic that is in somebody else's hands stops all of them: half a list is never published.
        if isinstance(step, Settled):
            return step
        if step is not None:
            actions.append(step)
            indices.append(topic.index)
    if not actions:
        return None
    which = ", ".join(str(index) for index in indices)
    return Act(tuple(actions), _creating(f"preparing storage topics {which} of {len(wanted.topics)}"))


def _storage_topic(wanted: Wanted, known: Knowledge, topic: WantedTopic) -> Action | Settled | None:  # noqa: PLR0911 - a table
    published = known.descriptor is not None and topic.index < len(known.descriptor.storage_topics)
    facts = known.topics.get(topic.index)
    if facts is None:
        if published or topic.adopt:
            return InspectStorageTopic(topic.index, topic.topic)
        return CreateStorageTopic(topic.index, topic.topic, topic.partitions)
    if not facts.exists:
        return _missing(known, topic, published)
    ownership = classify(facts.properties, wanted.owner)
    if ownership is Ownership.FOREIGN:
        return Settled(_foreign(topic.topic, facts))
    left_behind = published and _left_behind(wanted, known, topic, facts)
    if facts.partitions != topic.partitions and not left_behind:
        return Settled(_wrong_shape(topic, facts, published))
    if ownership is Ownership.UNOWNED and (published or not topic.adopt):
        return Settled(_not_owned(topic, published))
    if not published and not facts.created and topic.index not in known.partitions:
        # Data that was there before the descriptor was routed by somebody else, whoever owns the topic.
        return InspectPartitions(topic.index, topic.topic, topic.partitions)
    if ownership is Ownership.UNOWNED:
        return AdoptTopic(topic.index, topic.topic)
    if ownership is Ownership.OURS_OTHER_UID:
        return RenewOwner(topic.index, topic.topic)
    if not facts.settled:
        return SettlePolicies(topic.index, topic.topic, fresh=facts.created)
    return None


def _missing(known: Knowledge, topic: WantedTopic, published: bool) -> Action | Settled:
    if not published:
        return Settled(
            Verdict(
                Reason.INVALID_SPEC,
                f"{topic.topic} is to be adopted but does not exist; create it in Pulsar with "
                f"{topic.partitions} partitions",
            )
        )
    assert known.descriptor is not None
    held_data = known.descriptor.storage_topics[topic.index].layout.routing is Routing.UNKNOWN
    if topic.index > known.descriptor.produce_pointer and not held_data:
        # Nothing was ever written to it through us, and its cursors are made before the pointer gets there.
        return CreateStorageTopic(topic.index, topic.topic, topic.partitions)
    return Settled(
        Verdict(
            Reason.TOPIC_VANISHED,
            f"{topic.topic} was published and is gone, with the data that was in it; it is not created again "
            f"silently. Restore it, or accept the loss: create it with {topic.partitions} partitions and "
            "this object's owner properties (docs/operator.md says how)",
        )
    )


def _left_behind(wanted: Wanted, known: Knowledge, topic: WantedTopic, facts: TopicFacts) -> bool:
    """Partitions that somebody added do not matter in a topic that producers have left, or are to leave."""
    if known.descriptor is None or facts.partitions is None or facts.partitions < topic.partitions:
        return False
    return topic.index < max(known.descriptor.produce_pointer, wanted.produce_pointer)


def _foreign(topic: str, facts: TopicFacts) -> Verdict:
    return Verdict(
        Reason.FOREIGN_OWNER,
        f"{topic} belongs to {owner_named_in(facts.properties)}; it is left alone. Use another topicName",
    )


def _wrong_shape(topic: WantedTopic, facts: TopicFacts, published: bool) -> Verdict:
    found = "is not partitioned" if facts.partitions is None else f"has {facts.partitions} partitions"
    remedy = (
        "append a storage topic and raise producePointer to it"
        if published
        else "use another topicName, or remove the topic if nobody needs it"
    )
    return Verdict(
        Reason.PARTITION_MISMATCH,
        f"{topic.topic} {found}, but {topic.partitions} partitions are wanted; it is left alone: {remedy}",
    )


def _not_owned(topic: WantedTopic, published: bool) -> Verdict:
    if published:
        return Verdict(
            Reason.TOPIC_VANISHED,
            f"{topic.topic} no longer carries this object's owner properties, so it was probably deleted and "
            "created by somebody else, and its data is lost. To accept it, write the properties on it "
            "(docs/operator.md says how)",
        )
    return Verdict(
        Reason.TOPIC_EXISTS,
        f"{topic.topic} exists and carries no owner; it is left alone. Use adopt: true, or another topicName",
    )


def _publication(wanted: Wanted, known: Knowledge) -> Plan | None:
    published = known.descriptor
    count = 0 if published is None else len(published.storage_topics)
    if published is not None and count == len(_due(wanted, known)):
        return None
    added = [
        (topic.topic, topic.partitions, _routing_unknown(known, topic)) for topic in wanted.topics[count:]
    ]
    try:
        if published is None:
            if wanted.produce_pointer == 0 and _terminated(known, 0):
                return Settled(_terminated_outside(wanted.topics[0].topic))
            following = descriptors.initial(
                wanted.name, wanted.routing, added, scale_factor=wanted.scale_factor
            )
        else:
            following = descriptors.append(published, added)
    except DescriptorError as error:
        return Settled(Verdict(Reason.INVALID_SPEC, str(error)))
    return _publish(wanted, following, "publishing the storage topics")


def _publish(wanted: Wanted, following: Descriptor, doing: str, reason: Reason = Reason.CREATING) -> Act:
    publish = PublishDescriptor(wanted.descriptor_topic, following, following.generation - 1)
    return Act((publish,), Verdict(reason, f"{doing} (descriptor generation {following.generation})"))


def _routing_unknown(known: Knowledge, topic: WantedTopic) -> bool:
    facts = known.partitions.get(topic.index)
    return facts is not None and facts.holds_data


def _terminated(known: Knowledge, index: int) -> bool:
    facts = known.partitions.get(index)
    return facts is not None and facts.terminated > 0


def _terminated_outside(topic: str) -> Verdict:
    return Verdict(
        Reason.TERMINATED_OUTSIDE,
        f"{topic} was terminated, and not by a switch of this object: producers cannot write to it. Append a "
        "storage topic and raise producePointer to that one",
    )


def _switch(wanted: Wanted, known: Knowledge) -> Plan | None:
    published = known.descriptor
    assert published is not None
    announced = published.switching_to
    if announced is None and wanted.produce_pointer == published.produce_pointer:
        return _produce_topic_is_open(known, published)
    if announced is None:
        return _announce(wanted, known, published)
    index = published.produce_pointer
    source, target = published.produce_topic, published.storage_topics[index + 1]
    facts = known.switches.get(index, SwitchFacts())
    copy = CopySubscriptions(index, source.topic, source.layout.partitions, target.topic)
    if not facts.cursors_copied:
        return _switching(copy, f"copying the subscriptions of {source.topic} to {target.topic}")
    if facts.sealed is None:
        seal = SealPartitions(index, source.topic, source.layout.partitions)
        doing = f"sealing the {source.layout.partitions} partitions of {source.topic}"
        return Act((seal,), Verdict(Reason.SEALING, doing))
    if not facts.cursors_copied_again:
        again = CopySubscriptions(copy.index, copy.source, copy.source_partitions, copy.target, again=True)
        return _switching(again, f"copying subscriptions that came while {source.topic} was sealed")
    following = descriptors.complete_step(published, facts.sealed)
    return _publish(wanted, following, f"opening {target.topic} to producers", Reason.SWITCHING)


def _switching(action: Action, doing: str) -> Act:
    return Act((action,), Verdict(Reason.SWITCHING, doing))


def _announce(wanted: Wanted, known: Knowledge, published: Descriptor) -> Plan:
    """What is sealed cannot be opened again, so everything that could stop the switch is looked at before."""
    unopened = range(published.produce_pointer + 1, wanted.produce_pointer + 1)
    for index in unopened:
        topic = wanted.topics[index]
        if index not in known.partitions and not known.topics[index].created:
            look = InspectPartitions(index, topic.topic, topic.partitions)
            return _switching(look, f"checking {topic.topic} before switching to it")
    if _terminated(known, wanted.produce_pointer):
        return Settled(_terminated_outside(wanted.topics[wanted.produce_pointer].topic))
    try:
        following = descriptors.begin_switch(published, wanted.produce_pointer)
    except DescriptorError as error:
        return Settled(Verdict(Reason.INVALID_SPEC, str(error)))
    return _publish(wanted, following, "announcing the switch", Reason.SWITCHING)


def _produce_topic_is_open(known: Knowledge, published: Descriptor) -> Plan | None:
    index, topic = published.produce_pointer, published.produce_topic
    if known.topics[index].created:
        return None
    if index not in known.partitions:
        look = InspectPartitions(index, topic.topic, topic.layout.partitions)
        return Act((look,), _creating(f"checking that {topic.topic} is open"))
    return Settled(_terminated_outside(topic.topic)) if _terminated(known, index) else None
