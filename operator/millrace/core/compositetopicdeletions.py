"""What to do next about a CompositeTopic that is being deleted with `deletionPolicy: Delete`.

The same shape as `compositetopics.plan`. A topic is deleted only if it is ours by its properties and was
not adopted: names prove nothing. The descriptor topic goes last: as long as any storage topic is left, the
list of them is too.
"""

from __future__ import annotations

from millrace.api.reasons import Reason
from millrace.core.compositetopicactions import (
    Action,
    DeleteTopic,
    InspectDescriptorTopic,
    InspectStorageTopic,
    Knowledge,
    ReadDescriptor,
    TopicFacts,
    Wanted,
)
from millrace.core.compositetopics import Act
from millrace.core.conditions import Verdict
from millrace.core.ownership import Ownership, classify, is_adopted


def plan_deletion(wanted: Wanted, known: Knowledge) -> Act | None:
    """The next actions; None when nothing of ours is left and the finalizer may go."""
    if known.descriptor_topic is None:
        return _act(InspectDescriptorTopic(wanted.descriptor_topic), doing="looking for the descriptor")
    described = _may_delete(wanted, known.descriptor_topic)
    if described and not known.descriptor_read:
        return _act(ReadDescriptor(wanted.descriptor_topic), doing="reading the descriptor")
    names = _topics(wanted, known)
    unknown = [InspectStorageTopic(index, name) for index, name in names.items() if index not in known.topics]
    if unknown:
        return _act(*unknown, doing="looking at the storage topics")
    ours = [
        DeleteTopic(name, partitioned=True, index=index)
        for index, name in names.items()
        if _may_delete(wanted, known.topics[index])
    ]
    if ours:
        return _act(*ours, doing=f"deleting {', '.join(action.topic for action in ours)}")
    if described:
        topic = wanted.descriptor_topic
        return _act(DeleteTopic(topic, partitioned=False, index=None), doing=f"deleting {topic}")
    return None


def _topics(wanted: Wanted, known: Knowledge) -> dict[int, str]:
    """By index: of the spec, and what the descriptor has beyond it (an older spec was applied again)."""
    names = {topic.index: topic.topic for topic in wanted.topics}
    published = known.descriptor.storage_topics if known.descriptor else ()
    spare = len(names)
    for there in published:
        if there.topic not in names.values():
            names[spare] = there.topic
            spare += 1
    return names


def _may_delete(wanted: Wanted, facts: TopicFacts) -> bool:
    if not facts.exists or is_adopted(facts.properties):
        return False
    return classify(facts.properties, wanted.owner) in (Ownership.OURS, Ownership.OURS_OTHER_UID)


def _act(*actions: Action, doing: str) -> Act:
    return Act(actions, Verdict(Reason.DELETING, doing))
