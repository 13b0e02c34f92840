"""A second opinion on routing, worked out another way than in `millrace.core.routing`.

Murmur3 is written from its definition. Partitions are not computed but laid out: hash after hash, as one
deals cards, over a full period; what two topics share is then read off the tables. Shards come from slices.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import lcm

import numpy as np
import numpy.typing as npt

from millrace.core.routing import Layout, Routing

Table = npt.NDArray[np.int64]
HASHES = 2**31


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """MurmurHash3_x86_32, for every length and seed."""

    def scramble(word: int) -> int:
        word = word * 0xCC9E2D51 % 2**32
        word = (word << 15 | word >> 17) % 2**32
        return word * 0x1B873593 % 2**32

    state = seed
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        state ^= scramble(int.from_bytes(data[start : start + 4], "little"))
        state = (state << 13 | state >> 19) % 2**32
        state = (state * 5 + 0xE6546B64) % 2**32
    state ^= scramble(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor % 2**32
    return state


def deal(layout: Layout) -> list[int]:
    """The partition of each hash of one period: K rounds of P hashes; round r fills place r of every base."""
    partitions: list[int] = []
    for place in range(layout.scale_factor):
        # A round of P hashes passes over all bases K times.
        one_pass = [base * layout.scale_factor + place for base in range(layout.base)]
        partitions.extend(one_pass * layout.scale_factor)
    return partitions


@cache
def _dealt(layout: Layout) -> Table:
    return np.array(deal(layout), dtype=np.int64)


def range_starts(partitions: int) -> list[int]:
    """The first hash of each partition of a Range topic: the least one not below p/P of the hash space."""
    return [-(-Fraction(p, partitions) * HASHES // 1) for p in range(partitions)]


def _range_table(layout: Layout, hashes: Table) -> Table:
    starts = np.array(range_starts(layout.partitions), dtype=np.int64)
    return np.searchsorted(starts, hashes, side="right") - 1


def both(a: Layout, b: Layout) -> tuple[Table, Table]:
    """The partitions in `a` and in `b` of hashes that stand for all: no pair of partitions is left out.

    ShardConsistent: a full common period, so shares are exact too. Range: the hashes where a partition of
    either begins, for between two such nothing changes.
    """
    if a.routing is Routing.RANGE:
        hashes = np.array(sorted({*range_starts(a.partitions), *range_starts(b.partitions)}), dtype=np.int64)
        return _range_table(a, hashes), _range_table(b, hashes)
    table_a, table_b = _dealt(a), _dealt(b)
    period = lcm(len(table_a), len(table_b))
    return np.tile(table_a, period // len(table_a)), np.tile(table_b, period // len(table_b))


@cache
def pairs(a: Layout, b: Layout) -> tuple[Table, Table, Table]:
    """Which partitions of `a` and `b` have a hash in common (two columns), and how many hashes."""
    table_a, table_b = both(a, b)
    codes, counts = np.unique(table_a * b.partitions + table_b, return_counts=True)
    return codes // b.partitions, codes % b.partitions, counts


@cache
def owners(partitions: int, shard_count: int) -> Table:
    """The shard of each partition, from the slices [s*P/sc, (s+1)*P/sc) rounded down."""
    table = np.full(partitions, -1, dtype=np.int64)
    for shard in range(shard_count):
        first = Fraction(shard * partitions, shard_count).__floor__()
        end = Fraction((shard + 1) * partitions, shard_count).__floor__()
        table[first:end] = shard
    return table


def moved_share(a: Layout, b: Layout, shard_count: int) -> Fraction:
    """The share of hashes whose shard in `b` is another one than in `a` (of pairs, for Range)."""
    in_a, in_b, counts = pairs(a, b)
    moved = owners(a.partitions, shard_count)[in_a] != owners(b.partitions, shard_count)[in_b]
    return Fraction(int(counts[moved].sum()), int(counts.sum()))
