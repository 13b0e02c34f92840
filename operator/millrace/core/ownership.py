"""Who a Pulsar topic belongs to: the properties that say it, and what they mean to one object.

Pulsar has no notion of an owner, and several clusters, namespaces and teams may share one Pulsar namespace.
So every topic that the operator creates or adopts carries its owner, and a topic that carries somebody
else's, or nobody's, is never changed and never deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_PREFIX = "millrace.dev/"
CLUSTER = f"{_PREFIX}cluster"
NAMESPACE = f"{_PREFIX}namespace"
NAME = f"{_PREFIX}name"
UID = f"{_PREFIX}uid"
KIND = f"{_PREFIX}kind"
ADOPTED = f"{_PREFIX}adopted"


@dataclass(frozen=True, slots=True)
class Owner:
    """One object of one cluster. The uid tells an object from one that was deleted and applied again."""

    cluster: str
    namespace: str
    name: str
    uid: str
    kind: str = ""
    """Empty for a CompositeTopic: kinds may share a name."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} of cluster {self.cluster}"


class Ownership(Enum):
    """What a topic's properties mean to one object."""

    OURS = "Ours"
    """This very object created or adopted it."""

    OURS_OTHER_UID = "OursOtherUid"
    """An earlier object of the same name did: it was deleted with its data retained, and applied again."""

    FOREIGN = "Foreign"
    """Another cluster, namespace or object did."""

    UNOWNED = "Unowned"
    """It carries no owner: somebody made it by hand, or a client made it by connecting."""


def owner_properties(owner: Owner, *, adopted: bool = False) -> dict[str, str]:
    """What to write on a topic. An adopted one is marked for ever: it is never deleted by the operator."""
    properties = {CLUSTER: owner.cluster, NAMESPACE: owner.namespace, NAME: owner.name, UID: owner.uid}
    return properties | ({KIND: owner.kind} if owner.kind else {}) | ({ADOPTED: "true"} if adopted else {})


def classify(properties: Mapping[str, str], owner: Owner) -> Ownership:
    """Whose topic it is. Anything half written under our prefix is somebody's: only a blank topic is
    unowned.
    """
    if not any(key in properties for key in (CLUSTER, NAMESPACE, NAME, UID)):
        return Ownership.UNOWNED
    if (
        properties.get(CLUSTER),
        properties.get(NAMESPACE),
        properties.get(NAME),
        properties.get(KIND, ""),
    ) != (owner.cluster, owner.namespace, owner.name, owner.kind):
        return Ownership.FOREIGN
    return Ownership.OURS if properties.get(UID) == owner.uid else Ownership.OURS_OTHER_UID


def is_adopted(properties: Mapping[str, str]) -> bool:
    """Whether the topic was there before the operator was."""
    return properties.get(ADOPTED) == "true"


def owner_named_in(properties: Mapping[str, str]) -> str:
    """The owner for people, as far as the properties name it."""
    namespace, name, cluster = (properties.get(key, "?") for key in (NAMESPACE, NAME, CLUSTER))
    kind = f"{properties[KIND]} " if KIND in properties else ""
    return f"{kind}{namespace}/{name} of cluster {cluster}"
