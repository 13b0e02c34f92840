"""Shards: which partitions each owns, when groups keep theirs, and which partitions can share a group."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import InvalidLayout
from millrace.core.routing import (
    HASH_SPACE,
    Layout,
    Routing,
    is_even_partition_count,
    layouts,
    overlap,
    partition_of,
    partition_of_hash,
    partitions_of_shard,
    shard_consistent,
    shard_of,
    shard_of_partition,
)
from tests.unit.core.oracles import moved_share, owners, pairs

SC, RANGE, UNKNOWN = Routing.SHARD_CONSISTENT, Routing.RANGE, Routing.UNKNOWN
EVEN_COUNTS = [n for n in range(1, 25) if is_even_partition_count(n)]
LAYOUTS_TO_24 = [Layout(p, k) for p in range(1, 25) for k in range(1, p + 1) if p % k == 0]
RANGES_TO_24 = [Layout(p, 1, RANGE) for p in range(1, 25)]

hashes = st.integers(0, HASH_SPACE - 1)
layouts_of = st.builds(lambda base, k: Layout(base * k, k), st.integers(1, 128), st.integers(1, 32))
ranges_of = st.builds(lambda p: Layout(p, 1, RANGE), st.integers(1, 4096))
two_layouts = st.one_of(st.tuples(layouts_of, layouts_of), st.tuples(ranges_of, ranges_of))


# --- slices ---


@pytest.mark.parametrize("partitions", range(1, 65))
def test_slices_tile_the_topic_and_invert(partitions: int) -> None:
    for shard_count in range(1, 2 * partitions + 3):
        slices = [partitions_of_shard(shard, partitions, shard_count) for shard in range(shard_count)]
        assert [p for part in slices for p in part] == list(range(partitions))
        assert max(map(len, slices)) - min(map(len, slices)) <= 1
        for shard, part in enumerate(slices):
            assert {shard_of_partition(p, partitions, shard_count) for p in part} <= {shard}
        expected = owners(partitions, shard_count).tolist()
        assert [shard_of_partition(p, partitions, shard_count) for p in range(partitions)] == expected


def test_where_the_count_divides_every_shard_owns_equally_many() -> None:
    assert [list(partitions_of_shard(s, 6, 3)) for s in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_the_plain_quotient_is_not_the_inverse() -> None:
    # Shards of 3 over 4 partitions are [0], [1], [2, 3]; p * sc // P would give partition 1 to shard 0.
    assert [shard_of_partition(p, 4, 3) for p in range(4)] == [0, 1, 2, 2]
    assert [p * 3 // 4 for p in range(4)] == [0, 0, 1, 2]


@given(st.data(), st.integers(1, 2**31), st.integers(1, 2**31))
def test_a_partition_is_in_the_slice_of_its_shard(
    data: st.DataObject, partitions: int, shard_count: int
) -> None:
    partition = data.draw(st.integers(0, partitions - 1))
    shard = shard_of_partition(partition, partitions, shard_count)
    assert partition in partitions_of_shard(shard, partitions, shard_count)


@pytest.mark.parametrize("shard_count", [0, -1, HASH_SPACE + 1])
def test_an_impossible_shard_count_is_refused(shard_count: int) -> None:
    with pytest.raises(InvalidLayout, match="shard count"):
        partitions_of_shard(0, 4, shard_count)
    with pytest.raises(InvalidLayout, match="shard count"):
        shard_of_partition(0, 4, shard_count)
    with pytest.raises(InvalidLayout, match="shard count"):
        shard_consistent(Layout(4), Layout(8, 2), shard_count)


@pytest.mark.parametrize("beyond", [-1, 4])
def test_a_shard_or_a_partition_that_is_not_there_is_refused(beyond: int) -> None:
    with pytest.raises(InvalidLayout, match="shard"):
        partitions_of_shard(beyond, 8, 4)
    with pytest.raises(InvalidLayout, match="partition"):
        shard_of_partition(beyond, 4, 2)


def test_the_shard_of_a_group_is_that_of_its_partition() -> None:
    layout = Layout(12, 3)
    for n in range(300):
        assert partition_of(f"g{n}", layout) in partitions_of_shard(shard_of(f"g{n}", layout, 5), 12, 5)


def test_with_range_routing_a_shard_is_a_range_of_hashes_whatever_the_partitions() -> None:
    for shard_count, factor in product(range(1, 13), range(1, 9)):
        layout = Layout(shard_count * factor, 1, RANGE)
        for h in range(0, HASH_SPACE, HASH_SPACE // 97):
            shard = shard_of_partition(partition_of_hash(h, layout), layout.partitions, shard_count)
            assert shard == Fraction(h, HASH_SPACE) * shard_count // 1


# --- does every group keep its shard? ---


@pytest.mark.parametrize(
    ("routing", "said_no_though_none_moves"),
    [
        # Topics 0 and 2: going down to one partition and up again happens to restore every group's shard.
        # The way from each to the next needs a barrier all the same.
        (SC, {((4, 1, 2), 2), ((16, 1, 4), 2), ((16, 1, 4), 4)}),
        (RANGE, set()),
    ],
)
def test_in_every_chain_of_three_even_counts_groups_keep_their_shard_iff_it_says_so(
    routing: Routing, said_no_though_none_moves: set[tuple[tuple[int, ...], int]]
) -> None:
    cases, exceptions = 0, set()
    for counts in product(EVEN_COUNTS, repeat=3):
        chain = layouts(counts, routing)
        for (i, a), (j, b) in combinations(enumerate(chain), 2):
            for shard_count in range(1, 25):
                if a.partitions % shard_count or b.partitions % shard_count:
                    continue
                cases += 1
                kept = moved_share(a, b, shard_count) == 0
                if j == i + 2 and kept and not shard_consistent(a, b, shard_count):
                    exceptions.add((counts, shard_count))
                else:
                    assert shard_consistent(a, b, shard_count) == kept, (a, b, shard_count)
    assert cases == 9867
    assert exceptions == said_no_though_none_moves


def test_between_any_two_topics_it_never_says_yes_when_a_group_moves() -> None:
    missed = []
    for a, b in product(LAYOUTS_TO_24, repeat=2):
        for shard_count in range(1, 28):  # also counts that do not divide, and more shards than partitions
            kept = moved_share(a, b, shard_count) == 0
            if shard_consistent(a, b, shard_count):
                assert kept, (a, b, shard_count)
            elif kept:
                missed.append((a, b))
    # It may say no when none does, but only where one base is a multiple of the other. Neighbours in a chain
    # of appended topics never are that: then the later one keeps the base, or is smaller with K = 1.
    assert missed
    for a, b in missed:
        smaller, larger = sorted((a, b), key=lambda layout: layout.base)
        assert smaller.base < larger.base
        assert larger.base % smaller.base == 0
        assert smaller.scale_factor > 1


def test_range_topics_keep_their_shards_whenever_the_count_divides_both() -> None:
    for a, b in product(RANGES_TO_24, repeat=2):
        for shard_count in range(1, 28):
            divides = a.partitions % shard_count == 0 and b.partitions % shard_count == 0
            kept = moved_share(a, b, shard_count) == 0
            assert kept or not divides
            assert shard_consistent(a, b, shard_count) == kept, (a, b, shard_count)


@pytest.mark.parametrize(
    ("a", "b", "shard_count", "share"),
    [
        (Layout(10, 5), Layout(20, 10), 5, Fraction(3, 5)),
        (Layout(4), Layout(6), 2, Fraction(1, 2)),
        (Layout(4), Layout(2), 2, Fraction(1, 2)),
        (Layout(2), Layout(10, 5), 2, Fraction(0)),
        (Layout(10, 5), Layout(20, 10), 2, Fraction(0)),
    ],
)
def test_that_the_shard_count_divides_both_is_not_enough(
    a: Layout, b: Layout, shard_count: int, share: Fraction
) -> None:
    assert a.partitions % shard_count == b.partitions % shard_count == 0
    assert moved_share(a, b, shard_count) == share
    assert shard_consistent(a, b, shard_count) == (share == 0)


@given(
    st.one_of(st.tuples(layouts_of, layouts_of), st.tuples(ranges_of, ranges_of)), hashes, st.integers(1, 64)
)
def test_where_it_says_yes_a_hash_has_one_shard(
    both: tuple[Layout, Layout], h: int, shard_count: int
) -> None:
    a, b = both
    if shard_consistent(a, b, shard_count):
        in_a = shard_of_partition(partition_of_hash(h, a), a.partitions, shard_count)
        assert shard_of_partition(partition_of_hash(h, b), b.partitions, shard_count) == in_a


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 16), st.integers(1, 64), hashes)
def test_a_large_scale_up_keeps_the_shards_that_divide_its_base(
    shard_count: int, times: int, k: int, next_k: int, h: int
) -> None:
    base = shard_count * times
    a, b = Layout(base * k, k), Layout(base * next_k, next_k)
    assert shard_consistent(a, b, shard_count)
    in_a = shard_of_partition(partition_of_hash(h, a), a.partitions, shard_count)
    assert shard_of_partition(partition_of_hash(h, b), b.partitions, shard_count) == in_a == h % base // times


def test_one_shard_keeps_everything_and_an_equal_topic_keeps_any_count() -> None:
    assert shard_consistent(Layout(4), Layout(6), 1)
    assert shard_consistent(Layout(4), Layout(4, 1, RANGE), 1)
    assert shard_consistent(Layout(10, 5), Layout(10, 5), 7)


@pytest.mark.parametrize("shard_count", [1, 2, 4])
def test_of_a_topic_with_unknown_routing_nothing_is_assumed(shard_count: int) -> None:
    unknown = Layout(4, 1, UNKNOWN)
    assert not shard_consistent(unknown, Layout(4), shard_count)
    assert not shard_consistent(Layout(4), unknown, shard_count)
    assert not shard_consistent(unknown, unknown, shard_count)


def test_different_routings_do_not_keep_shards() -> None:
    assert not shard_consistent(Layout(4), Layout(4, 1, RANGE), 2)


# --- can a group live in both partitions? ---


@pytest.mark.parametrize("a", [*LAYOUTS_TO_24, *RANGES_TO_24], ids=str)
def test_overlap_holds_wherever_a_hash_lives_in_both(a: Layout) -> None:
    for b in RANGES_TO_24 if a.routing is RANGE else LAYOUTS_TO_24:
        in_a, in_b, _ = pairs(a, b)
        shared = set(zip(in_a.tolist(), in_b.tolist(), strict=True))
        said = {(x, y) for x in range(a.partitions) for y in range(b.partitions) if overlap(a, x, b, y)}
        assert shared <= said
        if a.routing is RANGE or a.base == b.base or a.scale_factor == b.scale_factor == 1:
            assert said == shared


@given(two_layouts, hashes)
def test_overlap_holds_for_the_partitions_of_any_hash(both: tuple[Layout, Layout], h: int) -> None:
    a, b = both
    assert overlap(a, partition_of_hash(h, a), b, partition_of_hash(h, b))


@given(st.integers(1, 4096), st.integers(1, 4096), st.data())
def test_overlapping_ranges_really_share_a_hash(p: int, q: int, data: st.DataObject) -> None:
    a, b = Layout(p, 1, RANGE), Layout(q, 1, RANGE)
    x, y = data.draw(st.integers(0, p - 1)), data.draw(st.integers(0, q - 1))
    if overlap(a, x, b, y):
        # The first hash of whichever begins later.
        h = -(-max(Fraction(x, p), Fraction(y, q)) * HASH_SPACE // 1)
        assert (partition_of_hash(h, a), partition_of_hash(h, b)) == (x, y)


def test_growing_within_a_base_waits_for_few_partitions_only() -> None:
    # 2 -> 10 -> 20: a partition of the last need not wait for all five of its base in the one before.
    before, after = Layout(10, 5), Layout(20, 10)
    waits = [sum(overlap(before, x, after, y) for x in range(10)) for y in range(20)]
    assert max(waits) <= 3


def test_partitions_of_foreign_or_different_routings_may_always_share_a_group() -> None:
    kinds = [Layout(4), Layout(4, 1, RANGE), Layout(4, 1, UNKNOWN)]
    for a, b in pairwise([*kinds, kinds[0]]):
        assert all(overlap(a, x, b, y) for x in range(4) for y in range(4))
    assert overlap(kinds[2], 0, kinds[2], 3)
