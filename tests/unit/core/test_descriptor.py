"""The descriptor: what holds of every one ever published, and what a reader accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.core.descriptor import (
    FORMAT_VERSION,
    Descriptor,
    DescriptorError,
    StorageTopic,
    append,
    begin_switch,
    complete_step,
    initial,
)
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import Layout, Routing, next_layout

SC, RANGE, UNKNOWN = Routing.SHARD_CONSISTENT, Routing.RANGE, Routing.UNKNOWN

counts = st.integers(1, 12)
entries = st.tuples(counts, st.booleans())
ends = st.one_of(st.just(EMPTY), st.builds(EntryId, st.integers(0, 2**40), st.integers(0, 2**20)))


class Lifetime(RuleBasedStateMachine):
    """Any sequence of changes that the functions allow, with the history of what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Descriptor] = []
        self.named = 0

    @property
    def now(self) -> Descriptor:
        return self.history[-1]

    def topics(self, shapes: list[tuple[int, bool]]) -> list[tuple[str, int, bool]]:
        self.named += len(shapes)
        return [
            (f"persistent://t/n/topic-{self.named - len(shapes) + i}", partitions, unknown)
            for i, (partitions, unknown) in enumerate(shapes)
        ]

    @precondition(lambda self: not self.history)
    @rule(routing=st.sampled_from([SC, RANGE]), shapes=st.lists(entries, min_size=1, max_size=3))
    def create(self, routing: Routing, shapes: list[tuple[int, bool]]) -> None:
        self.history.append(initial("ns/name", routing, self.topics(shapes)))

    @precondition(lambda self: self.history)
    @rule(shapes=st.lists(entries, min_size=1, max_size=3))
    def add_storage_topics(self, shapes: list[tuple[int, bool]]) -> None:
        before = self.now
        self.history.append(append(before, self.topics(shapes)))
        assert self.now.produce_pointer == before.produce_pointer
        assert self.now.switching_to == before.switching_to

    @precondition(lambda self: self.history)
    @rule(pointer=st.integers(-1, 12))
    def switch(self, pointer: int) -> None:
        now = self.now
        announced = now.produce_pointer if now.switching_to is None else now.switching_to
        allowed = announced < pointer < len(now.storage_topics)
        if not allowed or now.storage_topics[pointer].layout.routing is UNKNOWN:
            with pytest.raises(DescriptorError):
                begin_switch(now, pointer)
            return
        self.history.append(begin_switch(now, pointer))
        assert self.now.switching_to == pointer
        assert self.now.storage_topics == now.storage_topics

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        now = self.now
        count = now.produce_topic.layout.partitions
        sealed = data.draw(st.lists(ends, min_size=count, max_size=count))
        if now.switching_to is None:
            with pytest.raises(DescriptorError, match="no switch was announced"):
                complete_step(now, sealed)
            return
        for wrong in (sealed[1:], [*sealed, EMPTY]):
            with pytest.raises(DescriptorError, match="partitions are sealed"):
                complete_step(now, wrong)
        with pytest.raises(DescriptorError, match="not a sealed end"):
            complete_step(now, [*sealed[1:], EntryId(7, -1)])
        self.history.append(complete_step(now, sealed))
        assert self.now.produce_pointer == now.produce_pointer + 1
        assert self.now.storage_topics[now.produce_pointer].sealed == tuple(sealed)
        reached = self.now.produce_pointer == now.switching_to
        assert self.now.switching_to == (None if reached else now.switching_to)

    @invariant()
    def every_change_is_the_next_generation(self) -> None:
        assert [each.generation for each in self.history] == list(range(1, len(self.history) + 1))

    @invariant()
    def what_was_published_never_changes(self) -> None:
        for old, new in pairwise(self.history[-2:]):
            assert (new.name, new.routing) == (old.name, old.routing)
            assert len(new.storage_topics) >= len(old.storage_topics)
            for before, after in zip(old.storage_topics, new.storage_topics, strict=False):
                assert (after.topic, after.layout) == (before.topic, before.layout)
                assert before.sealed in (None, after.sealed)
            assert old.produce_pointer <= new.produce_pointer <= old.produce_pointer + 1
            assert new.produce_pointer == old.produce_pointer or old.switching_to is not None

    @invariant()
    def exactly_what_lies_before_the_pointer_is_sealed(self) -> None:
        for each in self.history[-1:]:
            sealed = [topic.sealed is not None for topic in each.storage_topics]
            assert sealed == [i < each.produce_pointer for i in range(len(sealed))]
            assert each.switching_to is None or (
                each.produce_pointer < each.switching_to < len(each.storage_topics)
                and each.storage_topics[each.switching_to].layout.routing is each.routing
            )

    @invariant()
    def layouts_follow_each_other(self) -> None:
        for each in self.history[-1:]:
            previous: Layout | None = None
            for topic in each.storage_topics:
                partitions, routing = topic.layout.partitions, topic.layout.routing
                assert topic.layout == next_layout(previous, partitions, routing)
                previous = topic.layout

    @invariant()
    def it_reads_back(self) -> None:
        for each in self.history[-1:]:
            assert Descriptor.from_json(each.to_json()) == each
            assert Descriptor.from_json(each.to_json()).to_json() == each.to_json()


Lifetime.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestLifetime = Lifetime.TestCase


# --- one value at a time ---


def grown() -> Descriptor:
    """Two topics, the first sealed, and a third announced."""
    first = initial("shop/orders", SC, [("persistent://t/n/a", 2, False), ("persistent://t/n/b", 4, False)])
    switched = complete_step(begin_switch(first, 1), [EntryId(5, 9), EMPTY])
    return begin_switch(append(switched, [("persistent://t/n/c", 8, False)]), 2)


def test_the_format_is_what_other_programs_read() -> None:
    assert json.loads(grown().to_json()) == {
        "version": 1,
        "oldestReader": 1,
        "generation": 5,
        "name": "shop/orders",
        "routing": "ShardConsistent",
        "producePointer": 1,
        "switchingTo": 2,
        "storageTopics": [
            {
                "topic": "persistent://t/n/a",
                "partitions": 2,
                "k": 1,
                "routing": "ShardConsistent",
                "sealed": [[5, 9], [-1, -1]],
            },
            {
                "topic": "persistent://t/n/b",
                "partitions": 4,
                "k": 2,
                "routing": "ShardConsistent",
                "sealed": None,
            },
            {
                "topic": "persistent://t/n/c",
                "partitions": 8,
                "k": 4,
                "routing": "ShardConsistent",
                "sealed": None,
            },
        ],
    }


def test_partitions_are_named_as_in_pulsar() -> None:
    assert grown().produce_topic.partition_topic(3) == "persistent://t/n/b-partition-3"


def test_a_switch_goes_through_every_topic_on_the_way() -> None:
    topics = [(f"t{i}", 1, False) for i in range(3)]
    announced = begin_switch(initial("n", RANGE, topics), 2)
    first = complete_step(announced, [EMPTY])
    assert (first.produce_pointer, first.switching_to) == (1, 2)
    second = complete_step(first, [EntryId(1, 0)])
    assert (second.produce_pointer, second.switching_to) == (2, None)


def test_a_switch_may_pass_an_adopted_topic_but_not_end_there() -> None:
    chain = initial("n", SC, [("t0", 2, True), ("t1", 2, True), ("t2", 2, False)])
    with pytest.raises(DescriptorError, match="t1: it was adopted with data"):
        begin_switch(chain, 1)
    assert begin_switch(chain, 2).switching_to == 2


@pytest.mark.parametrize("topics", [[], [("a", 0, False)], [("a", 2, False), ("a", 2, False)]])
def test_an_impossible_beginning_is_refused(topics: list[tuple[str, int, bool]]) -> None:
    with pytest.raises(DescriptorError):
        initial("n", SC, topics)


@pytest.mark.parametrize("topics", [[], [("persistent://t/n/a", 2, False)], [("d", -1, False)]])
def test_an_impossible_append_is_refused(topics: list[tuple[str, int, bool]]) -> None:
    with pytest.raises(DescriptorError):
        append(grown(), topics)


def test_a_composite_topic_has_a_routing() -> None:
    with pytest.raises(DescriptorError, match="routing"):
        initial("n", UNKNOWN, [("a", 1, False)])


@pytest.mark.parametrize(
    "changes",
    [
        {"produce_pointer": 0},
        {"produce_pointer": 2, "switching_to": None},
        {"produce_pointer": -1},
        {"produce_pointer": 3},
        {"switching_to": 1},
        {"switching_to": 3},
        {"generation": 0},
        {"storage_topics": ()},
        {"routing": RANGE},
    ],
    ids=str,
)
def test_an_impossible_value_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(DescriptorError):
        replace(grown(), **changes)


@pytest.mark.parametrize("end", [EntryId(5, -1), EntryId(-1, 0), EntryId(-2, -2)], ids=str)
def test_what_terminate_may_answer_is_not_taken_for_a_sealed_end(end: EntryId) -> None:
    with pytest.raises(DescriptorError, match=r"a-partition-1: .* is not a sealed end"):
        StorageTopic("a", Layout(2), (EMPTY, end))


# --- what a reader accepts ---


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(grown().to_json())
    change(document)
    return json.dumps(document).encode()


def test_unknown_fields_are_ignored_everywhere() -> None:
    def add(document: dict[str, Any]) -> None:
        document["colour"] = {"any": ["thing"]}
        document["storageTopics"][0]["tier"] = "cold"

    assert Descriptor.from_json(changed(add)) == grown()


def test_the_next_version_is_read_while_it_says_that_this_reader_may() -> None:
    newer = changed(lambda document: document.update(version=FORMAT_VERSION + 1, oldestReader=FORMAT_VERSION))
    assert Descriptor.from_json(newer) == grown()


def test_a_version_that_needs_a_newer_reader_is_refused_with_what_to_do() -> None:
    newer = changed(lambda document: document.update(version=7, oldestReader=FORMAT_VERSION + 1))
    with pytest.raises(DescriptorError, match=r"format version 7.*reader of version 2.*upgrade this program"):
        Descriptor.from_json(newer)


def test_a_newer_version_may_have_changed_anything_but_what_says_so() -> None:
    with pytest.raises(DescriptorError, match="upgrade this program"):
        Descriptor.from_json(b'{"version": 3, "oldestReader": 2, "entirely": "different"}')


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"3", b'"x"', b"{", b"\xff\xfe", b"{}", b"NaN", b"[" * 100_000, b'{"version":1}'],
    ids=lambda data: repr(data[:16]),
)
def test_what_is_no_descriptor_is_refused(data: bytes) -> None:
    with pytest.raises(DescriptorError, match="not a composite-topic descriptor"):
        Descriptor.from_json(data)


FIELDS = ["version", "oldestReader", "generation", "name", "routing", "producePointer", "storageTopics"]


@pytest.mark.parametrize("field", [*FIELDS, "switchingTo"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(DescriptorError, match=f"it has no '{field}'"):
        Descriptor.from_json(changed(lambda document: document.pop(field)))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, True, 1.0, "1", [1], {"a": 1}], ids=repr)
def test_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    if field == "name" and isinstance(value, str):
        return
    with pytest.raises(DescriptorError):
        Descriptor.from_json(changed(lambda document: document.update({field: value})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", 3),
        ("partitions", "2"),
        ("partitions", 2.0),
        ("partitions", 3),
        ("k", True),
        ("k", 0),
        ("routing", "Sideways"),
        ("sealed", None),
        ("sealed", [[5, 9]]),
        ("sealed", ["ab", "cd"]),
        ("sealed", [[5, 9], [1]]),
        ("sealed", [[5, 9], [1, 2, 3]]),
        ("sealed", [[5, 9], [1, -1]]),
        ("sealed", [[5, 9], [1.5, 2]]),
    ],
)
def test_a_storage_topic_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_json(changed(lambda document: document["storageTopics"][0].update({field: value})))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*FIELDS, "switchingTo"]), json_values)
def test_any_value_in_any_field_is_read_or_refused_but_never_breaks(field: str, value: object) -> None:
    try:
        read = Descriptor.from_json(changed(lambda document: document.update({field: value})))
    except DescriptorError:
        return
    assert Descriptor.from_json(read.to_json()) == read


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_json(data)
