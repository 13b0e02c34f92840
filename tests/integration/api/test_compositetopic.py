"""Each rule of CompositeTopic, refused and allowed by a real API server."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.integration.api.apiserver import COMPOSITE_TOPIC, ApiServer, Manifest, RefusedError

pytestmark = pytest.mark.integration

TWO_TOPICS = ({"partitions": 2}, {"partitions": 4, "topicName": "orders-b"})


def spec(*topics: Manifest, **fields: Any) -> Manifest:
    return {"pulsarNamespace": "public/default", "storageTopics": list(topics or TWO_TOPICS), **fields}


class Refused(NamedTuple):
    """A change, and the field and sentence with which it is refused."""

    name: str
    old: Manifest
    new: Manifest
    field: str
    message: str


class Allowed(NamedTuple):
    """A change that goes through."""

    name: str
    old: Manifest
    new: Manifest


class Invalid(NamedTuple):
    """An object that cannot be created."""

    name: str
    spec: Manifest
    field: str
    message: str


UNEVEN = (
    "partitions must be 1, 2, 3 or a multiple of 4 or 6, not {}; "
    "use such a count, for it divides evenly among many shard counts, or set allowUneven: true"
)
REMOVED = (
    "storageTopics is append-only, and had {} entries, not {}: "
    "keep every entry, in order, and append new ones at the end"
)
CHANGED = "storageTopics[{}] never changes: leave it as it was, append a new entry and raise producePointer"
LOWERED = (
    "producePointer only grows: it is {} and cannot become {}, for what lies before it is sealed for ever; "
    "append a storage topic and point to that one"
)
BEYOND = (
    "producePointer is {}, but the last storage topic has index {}; "
    "append the storage topic first, or in the same change"
)
ROUTING = (
    "routing never changes, for it decides in which partition a group is; "
    "create another CompositeTopic instead"
)
NAMESPACE = "pulsarNamespace never changes, for topics cannot move; create another CompositeTopic instead"
CONNECTION = (
    "connectionRef never changes once it is set, for the topics are in that cluster; "
    "edit the PulsarConnection, or create another CompositeTopic"
)
ONCE = "each topicName may be used once: give every storage topic a name of its own, or leave topicName out"
KEEP_UNEVEN = (
    "allowUneven cannot be turned off while a storage topic has an uneven partition count, "
    "for entries never change; keep allowUneven: true"
)
DURATION = (
    "must be a duration: write up to six digits and one of s, m, h, d (for example 7d), or -1 for no limit"
)
SIZE = "must be a size: write up to six digits and one of Mi, Gi, Ti (for example 10Gi), or -1 for no limit"
TOPIC_NAME = (
    "must be a name within pulsarNamespace: letters, digits and any of - = : . _ "
    "(leave out persistent:// and the namespace)"
)
PULSAR_NAMESPACE = "must be a Pulsar namespace written TENANT/NAMESPACE, for example public/default"

A, B = TWO_TOPICS

REFUSED_CHANGES = [
    Refused("an entry removed at the end", spec(A, B), spec(A), "spec.storageTopics", REMOVED.format(2, 1)),
    Refused("an entry removed at the front", spec(A, B), spec(B), "spec.storageTopics", REMOVED.format(2, 1)),
    Refused("entries in another order", spec(A, B), spec(B, A), "spec.storageTopics", CHANGED.format(0)),
    Refused(
        "an entry inserted before others",
        spec(A, B),
        spec(A, {"partitions": 12}, B),
        "spec.storageTopics",
        CHANGED.format(1),
    ),
    Refused("other partitions", spec(A), spec({"partitions": 4}), "spec.storageTopics", CHANGED.format(0)),
    Refused(
        "all entries replaced by as many others",
        spec(A, B),
        spec({"partitions": 6}, {"partitions": 8}),
        "spec.storageTopics",
        CHANGED.format(0),
    ),
    Refused(
        "a change hidden behind an appended entry",
        spec(A, B),
        spec(A, B | {"partitions": 8}, {"partitions": 12}),
        "spec.storageTopics",
        CHANGED.format(1),
    ),
    Refused(
        "a topic name set later",
        spec(A),
        spec(A | {"topicName": "x"}),
        "spec.storageTopics",
        CHANGED.format(0),
    ),
    Refused(
        "a topic name unset", spec(A, B), spec(A, {"partitions": 4}), "spec.storageTopics", CHANGED.format(1)
    ),
    Refused(
        "another topic name",
        spec(A, B),
        spec(A, B | {"topicName": "orders-c"}),
        "spec.storageTopics",
        CHANGED.format(1),
    ),
    Refused(
        "adoption turned on",
        spec(A, B),
        spec(A, B | {"adopt": True}),
        "spec.storageTopics",
        CHANGED.format(1),
    ),
    Refused(
        "adoption unset",
        spec(A, B | {"adopt": True}),
        spec(A, B),
        "spec.storageTopics",
        CHANGED.format(1),
    ),
    Refused(
        "the last of 64 entries changed",
        spec(*[A] * 64),
        spec(*[A] * 63, {"partitions": 3}),
        "spec.storageTopics",
        CHANGED.format(63),
    ),
    Refused(
        "a lower pointer",
        spec(A, B, A, producePointer=2),
        spec(A, B, A, producePointer=1),
        "spec.producePointer",
        LOWERED.format(2, 1),
    ),
    Refused(
        "the pointer unset",
        spec(A, B, producePointer=1),
        spec(A, B),
        "spec.producePointer",
        LOWERED.format(1, 0),
    ),
    Refused(
        "a pointer beyond the list",
        spec(A, B),
        spec(A, B, producePointer=2),
        "spec.producePointer",
        BEYOND.format(2, 1),
    ),
    Refused("another routing", spec(), spec(routing="Range"), "spec.routing", ROUTING),
    Refused("the routing unset", spec(routing="Range"), spec(), "spec.routing", ROUTING),
    Refused(
        "another Pulsar namespace",
        spec(),
        spec(pulsarNamespace="public/other"),
        "spec.pulsarNamespace",
        NAMESPACE,
    ),
    Refused(
        "another connection",
        spec(connectionRef={"name": "a"}),
        spec(connectionRef={"name": "b"}),
        "spec.connectionRef",
        CONNECTION,
    ),
    # Were this one allowed, unset and set again would be a way around the rule before.
    Refused(
        "the connection unset", spec(connectionRef={"name": "a"}), spec(), "spec.connectionRef", CONNECTION
    ),
    Refused(
        "an uneven count appended",
        spec(A),
        spec(A, {"partitions": 5}),
        "spec.storageTopics",
        UNEVEN.format(5),
    ),
    Refused(
        "evenness asked for where a count is uneven",
        spec({"partitions": 5}, allowUneven=True),
        spec({"partitions": 5}),
        "spec.allowUneven",
        KEEP_UNEVEN,
    ),
    Refused(
        "a name appended that is in use",
        spec(A, B),
        spec(A, B, B),
        "spec.storageTopics",
        ONCE,
    ),
]

ALLOWED_CHANGES = [
    Allowed("nothing", spec(), spec()),
    Allowed("an entry appended", spec(A), spec(A, B)),
    Allowed("several entries appended", spec(A), spec(A, B, A, A)),
    Allowed("fewer partitions appended", spec({"partitions": 12}), spec({"partitions": 12}, A)),
    Allowed("an entry appended that adopts", spec(A), spec(A, B | {"adopt": True})),
    Allowed("a default written out", spec(A), spec(A | {"adopt": False}, routing="ShardConsistent")),
    Allowed("the pointer raised", spec(A, B), spec(A, B, producePointer=1)),
    Allowed("the pointer raised by two", spec(A, B, A), spec(A, B, A, producePointer=2)),
    Allowed("an entry appended and pointed to", spec(A), spec(A, B, producePointer=1)),
    Allowed("a default connection pinned", spec(), spec(connectionRef={"name": "a"})),
    Allowed("retention set", spec(), spec(retention={"time": "7d"})),
    Allowed("retention changed", spec(retention={"time": "7d"}), spec(retention={"size": "10Gi"})),
    Allowed("retention unset", spec(retention={"time": "7d"}), spec()),
    Allowed("the deletion policy changed", spec(), spec(deletionPolicy="Delete")),
    Allowed("namespaces allowed", spec(), spec(allowedNamespaces=["a", "b"])),
    Allowed("namespaces no longer allowed", spec(allowedNamespaces=["a"]), spec()),
    Allowed("unevenness allowed", spec(), spec(allowUneven=True)),
    Allowed("unevenness given up where all is even", spec(allowUneven=True), spec()),
    Allowed(
        "an uneven count appended where that is allowed",
        spec(A, allowUneven=True),
        spec(A, {"partitions": 5}, allowUneven=True),
    ),
    Allowed("the 64th entry appended", spec(*[A] * 63), spec(*[A] * 64)),
]

INVALID = [
    *(
        Invalid(
            f"{count} partitions", spec({"partitions": count}), "spec.storageTopics", UNEVEN.format(count)
        )
        for count in (5, 7, 9, 10, 11, 13, 4095)
    ),
    Invalid(
        "the first uneven count of several",
        spec(A, {"partitions": 7}, {"partitions": 5}),
        "spec.storageTopics",
        UNEVEN.format(7),
    ),
    Invalid(
        "adoption without a name",
        spec({"partitions": 2, "adopt": True}),
        "spec.storageTopics[0].topicName",
        "topicName is required when adopt is true: say which existing topic to adopt",
    ),
    Invalid("a name twice", spec(A, B, B), "spec.storageTopics", ONCE),
    Invalid(
        "a pointer beyond the list", spec(A, producePointer=1), "spec.producePointer", BEYOND.format(1, 0)
    ),
    Invalid(
        "a partition's name",
        spec({"partitions": 2, "topicName": "x-partition-0"}),
        "spec.storageTopics[0].topicName",
        "topicName must not contain -partition-, by which Pulsar names partitions; name the whole topic",
    ),
    Invalid(
        "a full topic name",
        spec({"partitions": 2, "topicName": "persistent://public/default/x"}),
        "spec.storageTopics[0].topicName",
        TOPIC_NAME,
    ),
    *(
        Invalid(
            f"the Pulsar namespace {value!r}",
            spec(pulsarNamespace=value),
            "spec.pulsarNamespace",
            PULSAR_NAMESPACE,
        )
        for value in ("default", "public/", "/default", "public/default/x", "public/*", "public/de fault")
    ),
    *(
        Invalid(f"retention for {value!r}", spec(retention={"time": value}), "spec.retention.time", DURATION)
        for value in ("7", "0d", "-2", "7w", "1.5h", "1000000d", "")
    ),
    *(
        Invalid(f"retention of {value!r}", spec(retention={"size": value}), "spec.retention.size", SIZE)
        for value in ("10", "10G", "10GB", "0Gi", "-1Gi")
    ),
    Invalid(
        "a connection that cannot be a name",
        spec(connectionRef={"name": "Not A Name"}),
        "spec.connectionRef.name",
        "must be the name of an object: lower-case letters, digits, '-' and '.'",
    ),
    Invalid(
        "an allowed namespace that cannot be one",
        spec(allowedNamespaces=["*"]),
        "spec.allowedNamespaces[0]",
        "must be the name of a Kubernetes namespace",
    ),
    Invalid(
        "no storage topics",
        {"pulsarNamespace": "public/default", "storageTopics": []},
        "spec.storageTopics",
        "spec.storageTopics in body should have at least 1 items",
    ),
    Invalid("65 storage topics", spec(*[A] * 65), "spec.storageTopics", "must have at most 64 items"),
    Invalid(
        "no partitions",
        spec({"partitions": 0}, allowUneven=True),
        "spec.storageTopics[0].partitions",
        "should be greater than or equal to 1",
    ),
    Invalid(
        "too many partitions",
        spec({"partitions": 4098}),
        "spec.storageTopics[0].partitions",
        "should be less than or equal to 4096",
    ),
    Invalid(
        "another routing",
        spec(routing="Random"),
        "spec.routing",
        'supported values: "ShardConsistent", "Range"',
    ),
    Invalid("no Pulsar namespace", {"storageTopics": [A]}, "spec.pulsarNamespace", "Required value"),
]


def by_name(case: Refused | Allowed | Invalid) -> str:
    return case.name.replace(" ", "-")


@pytest.mark.parametrize("case", REFUSED_CHANGES, ids=by_name)
def test_a_change_is_refused_with_a_sentence_that_says_what_to_do(
    api_server: ApiServer, case: Refused
) -> None:
    created = api_server.create(COMPOSITE_TOPIC, case.old)

    with pytest.raises(RefusedError) as refused:
        api_server.replace(COMPOSITE_TOPIC, created, case.new)

    assert refused.value.says(case.field, case.message), refused.value.causes
    assert api_server.get(COMPOSITE_TOPIC, created["metadata"]["name"])["spec"] == created["spec"]


@pytest.mark.parametrize("case", ALLOWED_CHANGES, ids=by_name)
def test_a_change_is_allowed(api_server: ApiServer, case: Allowed) -> None:
    created = api_server.create(COMPOSITE_TOPIC, case.old)

    replaced = api_server.replace(COMPOSITE_TOPIC, created, case.new)

    assert (
        replaced["spec"].items()
        >= {key: case.new[key] for key in case.new.keys() - {"storageTopics", "retention"}}.items()
    )


@pytest.mark.parametrize("case", INVALID, ids=by_name)
def test_an_object_is_refused_with_a_sentence_that_says_what_to_do(
    api_server: ApiServer, case: Invalid
) -> None:
    with pytest.raises(RefusedError) as refused:
        api_server.create(COMPOSITE_TOPIC, case.spec)

    assert refused.value.says(case.field, case.message), refused.value.causes


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6, 8, 12, 16, 18, 20, 24, 4092, 4096])
def test_an_even_partition_count_is_accepted(api_server: ApiServer, partitions: int) -> None:
    created = api_server.create(COMPOSITE_TOPIC, spec({"partitions": partitions}))

    assert created["spec"]["storageTopics"][0]["partitions"] == partitions


def test_defaults_are_written_into_the_object(api_server: ApiServer) -> None:
    created = api_server.create(COMPOSITE_TOPIC, spec({"partitions": 2}, retention={}))

    assert created["spec"] == {
        "pulsarNamespace": "public/default",
        "routing": "ShardConsistent",
        "allowUneven": False,
        "storageTopics": [{"partitions": 2, "adopt": False}],
        "producePointer": 0,
        "retention": {"time": "-1", "size": "-1"},
        "deletionPolicy": "Retain",
        "allowedNamespaces": [],
    }


def test_the_largest_object_is_within_the_cost_budget_also_when_it_changes(api_server: ApiServer) -> None:
    topics = [{"partitions": 4096, "topicName": f"{i:03}".ljust(200, "x"), "adopt": True} for i in range(64)]
    largest = {
        "pulsarNamespace": f"{'t' * 99}/{'n' * 100}",
        "storageTopics": topics,
        "connectionRef": {"name": "c" * 253},
        "allowedNamespaces": [f"{i:03}".ljust(63, "x") for i in range(64)],
        "retention": {"time": "999999d", "size": "999999Ti"},
    }

    created = api_server.create(COMPOSITE_TOPIC, largest)
    replaced = api_server.replace(COMPOSITE_TOPIC, created, largest | {"producePointer": 63})

    assert replaced["spec"]["producePointer"] == 63
