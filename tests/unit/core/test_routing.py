"""Routing: which partition a hash goes to, and what K a new storage topic gets."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import InvalidLayout
from millrace.core.routing import (
    HASH_SPACE,
    Layout,
    Routing,
    group_hash,
    is_even_partition_count,
    layouts,
    next_layout,
    partition_of,
    partition_of_hash,
)
from tests.unit.core.oracles import HASHES, deal, range_starts

SC, RANGE, UNKNOWN = Routing.SHARD_CONSISTENT, Routing.RANGE, Routing.UNKNOWN
ALL_LAYOUTS = [Layout(p, k) for p in range(1, 49) for k in range(1, p + 1) if p % k == 0]

hashes = st.integers(0, HASH_SPACE - 1)
large_layouts = st.builds(lambda base, k: Layout(base * k, k), st.integers(1, 4096), st.integers(1, 4096))


@pytest.mark.parametrize(
    "layout", ALL_LAYOUTS, ids=lambda layout: f"P{layout.partitions}-K{layout.scale_factor}"
)
def test_shard_consistent_routing_deals_a_full_period(layout: Layout) -> None:
    dealt = deal(layout)
    assert [partition_of_hash(h, layout) for h in range(len(dealt))] == dealt
    # It repeats from there on, up to the last hash.
    top = HASH_SPACE // len(dealt) * len(dealt) - len(dealt)
    assert [partition_of_hash(top + h, layout) for h in range(len(dealt))] == dealt


def test_over_a_period_every_partition_gets_the_same_number_of_hashes() -> None:
    for layout in ALL_LAYOUTS:
        counts = Counter(partition_of_hash(h, layout) for h in range(layout.partitions * layout.scale_factor))
        assert counts == dict.fromkeys(range(layout.partitions), layout.scale_factor)


@given(hashes, large_layouts)
def test_a_base_partition_maps_onto_its_own_k_partitions(h: int, layout: Layout) -> None:
    partition = partition_of_hash(h, layout)
    assert 0 <= partition < layout.partitions
    assert partition // layout.scale_factor == h % layout.base


@given(hashes, st.integers(1, 4096))
def test_without_a_scale_up_the_partition_is_the_remainder(h: int, partitions: int) -> None:
    assert partition_of_hash(h, Layout(partitions)) == h % partitions


@pytest.mark.parametrize("partitions", [*range(1, 65), 100, 4096])
def test_range_routing_changes_exactly_where_a_range_begins(partitions: int) -> None:
    layout = Layout(partitions, routing=RANGE)
    starts = range_starts(partitions)
    for partition, (first, end) in enumerate(pairwise([*starts, HASHES])):
        assert partition_of_hash(first, layout) == partition
        assert partition_of_hash(end - 1, layout) == partition


@given(hashes, st.integers(1, 2**20))
def test_range_routing_is_the_share_of_the_hash_space(h: int, partitions: int) -> None:
    partition = partition_of_hash(h, Layout(partitions, routing=RANGE))
    assert Fraction(partition, partitions) <= Fraction(h, HASHES) < Fraction(partition + 1, partitions)


def test_in_32_bits_two_fifths_of_the_hashes_would_leave_the_range() -> None:
    layout = Layout(10, 5)
    h = np.random.default_rng(1).integers(0, HASHES, 200_000, dtype=np.int32)
    with np.errstate(over="ignore"):
        narrow = np.fmod(h * np.int32(layout.scale_factor), np.int32(10)) + h // 10 % 5
    outside = ((narrow < 0) | (narrow >= layout.partitions)).mean()
    assert outside == pytest.approx(0.4, abs=0.01)
    assert all(0 <= partition_of_hash(int(x), layout) < 10 for x in h[:1000])


def test_a_group_goes_where_its_hash_goes() -> None:
    layout = Layout(24, 6)
    for n in range(500):
        assert partition_of(f"group-{n}", layout) == partition_of_hash(group_hash(f"group-{n}"), layout)


def test_a_topic_of_unknown_routing_is_never_written_to() -> None:
    with pytest.raises(InvalidLayout, match="cannot be written to"):
        partition_of("g", Layout(4, routing=UNKNOWN))


@pytest.mark.parametrize(
    ("partitions", "k", "routing"),
    [
        (0, 1, SC),
        (-4, 1, SC),
        (4, 0, SC),
        (4, -2, SC),
        (4, 3, SC),
        (4, 8, SC),
        (HASH_SPACE + 1, 1, RANGE),
        (4, 2, RANGE),
        (4, 2, UNKNOWN),
    ],
)
def test_an_impossible_layout_is_refused(partitions: int, k: int, routing: Routing) -> None:
    with pytest.raises(InvalidLayout):
        Layout(partitions, k, routing)


# --- K of an appended storage topic ---


@pytest.mark.parametrize(
    ("counts", "scale_factors"),
    [
        ([2, 10], [1, 5]),
        ([2, 10, 20], [1, 5, 10]),
        ([2, 12, 4, 2], [1, 6, 2, 1]),
        ([2, 12, 3], [1, 6, 1]),
        ([2, 12, 3, 12], [1, 6, 1, 4]),
        ([4, 6], [1, 1]),
        ([4, 6, 12], [1, 1, 2]),
        ([1, 7, 3], [1, 7, 3]),
        ([7, 10], [1, 1]),
        ([6, 6], [1, 1]),
        ([2, 4, 4], [1, 2, 2]),
    ],
)
def test_k_keeps_the_base_while_the_count_is_a_multiple_of_it(
    counts: list[int], scale_factors: list[int]
) -> None:
    assert [layout.scale_factor for layout in layouts(counts, SC)] == scale_factors


def test_k_follows_the_rule_for_every_layout_and_every_next_count() -> None:
    for previous, partitions in product(ALL_LAYOUTS, range(1, 97)):
        appended = next_layout(previous, partitions, SC)
        multiples = [m for m in range(1, partitions + 1) if m * previous.base == partitions]
        assert appended == Layout(partitions, multiples[0] if multiples else 1)


def test_range_and_unknown_topics_have_no_scale_factor() -> None:
    assert layouts([2, 10, 20], RANGE) == (Layout(2, 1, RANGE), Layout(10, 1, RANGE), Layout(20, 1, RANGE))
    assert next_layout(Layout(2), 10, UNKNOWN) == Layout(10, 1, UNKNOWN)


def test_after_a_topic_of_unknown_routing_a_new_base_begins() -> None:
    assert next_layout(Layout(2, 1, UNKNOWN), 10, SC) == Layout(10)


def test_even_counts_are_one_two_three_and_multiples_of_four_or_six() -> None:
    even = {1, 2, 3} | {4 * n for n in range(1, 40)} | {6 * n for n in range(1, 40)}
    assert {n for n in range(-10, 150) if is_even_partition_count(n)} == {n for n in even if n < 150}
