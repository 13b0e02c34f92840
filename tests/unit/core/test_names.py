"""Names of topics: made, taken apart, and refused where Pulsar would read them as something else."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import InvalidName
from millrace.core.names import (
    MAX_LOCAL_NAME_LENGTH,
    TopicName,
    cursor_name,
    dead_letter_queue_name,
    descriptor_local_name,
    descriptor_topic_name,
    full_name,
    partition_topic_name,
    retry_queue_name,
    split_partition,
    state_topic_name,
    storage_topic_local_name,
    storage_topic_name,
    validate_local_name,
    validate_pulsar_namespace,
)

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
subdomains = st.lists(labels, min_size=1, max_size=3).map(".".join)
objects = st.tuples(labels, subdomains).filter(lambda names: "-partition-" not in f"{names[1]}-")


def test_topics_are_named_after_their_object() -> None:
    assert storage_topic_name("shop/prod", "team-a", "orders", 3) == "persistent://shop/prod/team-a.orders-3"
    assert descriptor_topic_name("shop/prod", "team-a", "orders") == (
        "persistent://shop/prod/team-a.orders-descriptor"
    )


@given(objects, objects, st.integers(0, 63), st.integers(0, 63))
def test_no_two_objects_share_a_name(a: tuple[str, str], b: tuple[str, str], i: int, j: int) -> None:
    names_a = {storage_topic_local_name(*a, i), descriptor_local_name(*a)}
    names_b = {storage_topic_local_name(*b, j), descriptor_local_name(*b)}
    assert len(names_a) == len(names_b) == 2
    if a != b:
        assert not names_a & names_b


def test_names_that_look_alike_stay_apart() -> None:
    lookalikes = [("a", "b"), ("a", "b-0"), ("a", "b-1"), ("a", "b-descriptor"), ("a-b", "b"), ("a", "b.b")]
    names = [
        name
        for pair in lookalikes
        for name in (*(storage_topic_local_name(*pair, i) for i in range(12)), descriptor_local_name(*pair))
    ]
    assert len(set(names)) == len(names)


def test_the_longest_object_of_kubernetes_has_a_name() -> None:
    local = storage_topic_local_name("n" * 63, "o" * 253, 63)
    assert TopicName.parse(full_name("t/n", local)).local == local
    descriptor_local_name("n" * 63, "o" * 253)


@pytest.mark.parametrize("name", ["orders-partition", "a-partition-b", "partition-partition"])
def test_an_object_whose_topics_would_look_like_partitions_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match=f"team/{name}.*-partition-"):
        storage_topic_local_name("team", name, 0)


@pytest.mark.parametrize("local", ["orders", "a", "A=b:c.d_e-f", "partition-0", "orders-partition", "..."])
def test_ordinary_names_are_accepted(local: str) -> None:
    validate_local_name(local)
    assert full_name("t/n", local) == f"persistent://t/n/{local}"


@pytest.mark.parametrize(
    "local",
    [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "a%2Fb",
        "a?b",
        "é",
        "a\n",
        "persistent://t/n/a",
        "a-partition-0",
        "a-partition-007",
        "a-partition-b",
        "__change_events",
        "x__transaction_pending_ack",
        "a" * (MAX_LOCAL_NAME_LENGTH + 1),
    ],
)
def test_a_name_that_pulsar_would_refuse_or_misread_is_refused(local: str) -> None:
    with pytest.raises(InvalidName):
        validate_local_name(local)
    with pytest.raises(InvalidName):
        full_name("t/n", local)


@pytest.mark.parametrize(
    "namespace", ["", "t", "t/", "/n", "t/n/x", "../n", "t/..", "t/.", "t@/n", "t/n ", "t/" + "n" * 200]
)
def test_what_is_no_pulsar_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidName):
        validate_pulsar_namespace(namespace)
    with pytest.raises(InvalidName):
        full_name(namespace, "orders")


words = st.text(string.ascii_letters + string.digits + "-=:._", min_size=1, max_size=30).filter(
    lambda word: word not in (".", "..")
)


@given(words, words, words)
def test_a_full_name_reads_back(tenant: str, namespace: str, local: str) -> None:
    name = TopicName.parse(f"persistent://{tenant}/{namespace}/{local}")
    assert name == TopicName(tenant, namespace, local)
    assert TopicName.parse(str(name)) == name
    assert name.pulsar_namespace == f"{tenant}/{namespace}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "t/n/orders",
        "non-persistent://t/n/orders",
        "persistent://t/n",
        "persistent://t/cluster/n/orders",
        "persistent://t/n/",
        "persistent://t/../orders",
    ],
)
def test_what_is_no_full_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.parse(text)


@given(words, st.integers(0, 4095))
def test_a_partition_splits_into_topic_and_index(local: str, partition: int) -> None:
    topic = f"persistent://t/n/{local}"
    partition_topic = partition_topic_name(topic, partition)
    assert split_partition(partition_topic) == (topic, partition)
    assert TopicName.parse(partition_topic).local == f"{local}-partition-{partition}"


# As org.apache.pulsar.common.naming.TopicName of Pulsar 4.0.8 takes them.
@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("a-partition-0", 0),
        ("a-partition-007", None),
        ("a-partition-x", None),
        ("a-partition-1-0", None),
        ("a-partition-1-partition-2", 2),
    ],
)
def test_only_what_pulsar_takes_for_a_partition_is_one(local: str, partition: int | None) -> None:
    topic = f"persistent://t/n/{local}"
    stem = re.sub(r"-partition-\d+$", "", topic)
    assert split_partition(topic) == ((topic, None) if partition is None else (stem, partition))


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(InvalidName):
        partition_topic_name("persistent://t/n/a", -1)


def test_what_belongs_to_a_subscription_is_named_after_it() -> None:
    assert cursor_name("prod-eu", "shop", "billing") == "millrace.prod-eu.shop.billing"
    retry, dead = retry_queue_name("billing"), dead_letter_queue_name("billing")
    assert storage_topic_local_name("shop", retry, 0) == "shop.billing_rq-0"
    assert descriptor_local_name("shop", retry) == "shop.billing_rq-descriptor"
    assert descriptor_local_name("shop", dead) == "shop.billing_dlq-descriptor"
    assert (
        state_topic_name("public/default", "shop", "billing", 1, 12)
        == "persistent://public/default/shop.billing_state-1-12"
    )
