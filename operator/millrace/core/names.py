"""The names of topics in Pulsar: how they are made, taken apart and checked.

Pulsar stores partition N of topic T as the topic T-partition-N, and tells the two apart by name alone. So
a name of ours must never look like a partition, whatever the object in Kubernetes is called: the broker would
refuse it, or a client would take it for a part of somebody else's topic.

Names made from an object are distinct for distinct objects of one cluster: a Kubernetes namespace has no dot,
so the first dot ends it; the last dash begins the suffix. What belongs to a Subscription has an underscore
after its name, which the name of an object cannot have: so no CompositeTopic is ever in its way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millrace.core.errors import InvalidName

SCHEME = "persistent://"
PARTITION_INFIX = "-partition-"

MAX_LOCAL_NAME_LENGTH = 400
"""Holds the longest name made of a Kubernetes namespace (63) and name (253), and fits a URL many times."""

MAX_NAMESPACE_LENGTH = 200
"""Of TENANT/NAMESPACE, as the custom resources limit it."""

# Not "." or "..": in the path of an admin URL they would lead to another topic or namespace.
_WORD = re.compile(r"(?!\.{1,2}\Z)[-=:.A-Za-z0-9_]+", re.ASCII)
_PARTITION = re.compile(r"(?P<topic>.+)-partition-(?P<index>0|[1-9][0-9]*)", re.ASCII)
_PENDING_ACK_SUFFIX = "__transaction_pending_ack"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A persistent topic. `str()` gives the full name, `local` the part within its namespace."""

    tenant: str
    namespace: str
    local: str

    def __post_init__(self) -> None:
        validate_pulsar_namespace(f"{self.tenant}/{self.namespace}")
        _check_word("topic name", self.local, MAX_LOCAL_NAME_LENGTH + len(PARTITION_INFIX) + 10)

    def __str__(self) -> str:
        return f"{SCHEME}{self.tenant}/{self.namespace}/{self.local}"

    @property
    def pulsar_namespace(self) -> str:
        """TENANT/NAMESPACE."""
        return f"{self.tenant}/{self.namespace}"

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read a full name, also that of a partition."""
        parts = text.removeprefix(SCHEME).split("/")
        if not text.startswith(SCHEME) or len(parts) != 3:
            raise InvalidName(f"{text!r} is not a full topic name: expected {SCHEME}TENANT/NAMESPACE/TOPIC")
        return cls(*parts)


def validate_local_name(local: str) -> None:
    """Raise InvalidName unless a topic of ours may be called so within its namespace."""
    _check_word("topic name", local, MAX_LOCAL_NAME_LENGTH)
    if PARTITION_INFIX in local:
        raise InvalidName(
            f"the topic name {local!r} contains {PARTITION_INFIX!r}, which Pulsar keeps for the partitions "
            "of a topic; choose another name"
        )
    if local.startswith("__") or local.endswith(_PENDING_ACK_SUFFIX):
        raise InvalidName(f"the topic name {local!r} is kept for Pulsar's own topics; choose another name")


def validate_pulsar_namespace(namespace: str) -> None:
    """Raise InvalidName unless this is TENANT/NAMESPACE."""
    tenant, slash, name = namespace.partition("/")
    if not slash or not _WORD.fullmatch(tenant) or not _WORD.fullmatch(name):
        raise InvalidName(
            f"{namespace!r} is not a Pulsar namespace: expected TENANT/NAMESPACE, "
            "each of letters, digits and any of - = : . _"
        )
    if len(namespace) > MAX_NAMESPACE_LENGTH:
        raise InvalidName(
            f"the Pulsar namespace {namespace[:32]!r}... has {len(namespace)} characters, "
            f"more than {MAX_NAMESPACE_LENGTH}"
        )


def full_name(pulsar_namespace: str, local: str) -> str:
    """The full name of a topic of ours."""
    validate_pulsar_namespace(pulsar_namespace)
    validate_local_name(local)
    return f"{SCHEME}{pulsar_namespace}/{local}"


def storage_topic_local_name(namespace: str, name: str, index: int) -> str:
    """What storage topic `index` of a CompositeTopic is called unless its entry says otherwise."""
    return _derived(namespace, name, str(index))


def storage_topic_name(pulsar_namespace: str, namespace: str, name: str, index: int) -> str:
    """The same as a full name."""
    return full_name(pulsar_namespace, storage_topic_local_name(namespace, name, index))


def descriptor_local_name(namespace: str, name: str) -> str:
    """What the descriptor topic of a CompositeTopic is called."""
    return _derived(namespace, name, "descriptor")


def descriptor_topic_name(pulsar_namespace: str, namespace: str, name: str) -> str:
    """The same as a full name."""
    return full_name(pulsar_namespace, descriptor_local_name(namespace, name))


def cursor_name(cluster_id: str, namespace: str, name: str) -> str:
    """What a Subscription's cursors are called, on its topic and on its queues."""
    return f"millrace.{cluster_id}.{namespace}.{name}"


def retry_queue_name(name: str) -> str:
    """What a Subscription's retry queue is called, as a composite topic."""
    return f"{name}_rq"


def dead_letter_queue_name(name: str) -> str:
    """What a Subscription's dead-letter queue is called, as a composite topic."""
    return f"{name}_dlq"


def state_topic_name(pulsar_namespace: str, namespace: str, name: str, generation: int, shard: int) -> str:
    """The topic with the state table of one shard."""
    return full_name(pulsar_namespace, _derived(namespace, f"{name}_state-{generation}", str(shard)))


def partition_topic_name(topic: str, partition: int) -> str:
    """The name under which Pulsar stores one partition of a topic."""
    if partition < 0:
        raise InvalidName(f"{topic}: partition {partition} cannot be")
    return f"{topic}{PARTITION_INFIX}{partition}"


def split_partition(topic: str) -> tuple[str, int | None]:
    """Take a topic's name apart into topic and partition; None where it does not name a partition."""
    match = _PARTITION.fullmatch(topic)
    return (match["topic"], int(match["index"])) if match else (topic, None)


def _derived(namespace: str, name: str, suffix: str) -> str:
    local = f"{namespace}.{name}-{suffix}"
    try:
        validate_local_name(local)
    except InvalidName as error:
        raise InvalidName(f"no topic can be named after {namespace}/{name}: {error}") from None
    return local


def _check_word(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise InvalidName(f"the {what} {text[:32]!r}... has {len(text)} characters, more than {limit}")
    if not _WORD.fullmatch(text):
        raise InvalidName(f"{text!r} is not a {what}: expected letters, digits and any of - = : . _")
