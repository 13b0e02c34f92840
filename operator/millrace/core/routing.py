"""Which partition a group goes to, which shard owns a partition, and when a group keeps its shard.

Every answer here is about order: a group that changes its shard between two storage topics may be
delivered by two owners at once unless a barrier stands between them. `shard_consistent` is the one
place that decides whether the barrier can be left out.

Notation: `h` the 31-bit hash of the group id, `P` partitions, `K` the scale factor, `B = P / K` the base.
Clients in other languages must compute `K * h` in 64 bits: in 32 bits the result leaves the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import gcd

import mmh3

from millrace.core.errors import InvalidLayout

HASH_BITS = 31
HASH_SPACE = 1 << HASH_BITS
"""How many hashes there are; also the limit of every count, so that all products fit in 64 bits."""


class Routing(StrEnum):
    """How a storage topic maps hashes to partitions."""

    SHARD_CONSISTENT = "ShardConsistent"
    """Base partition b of any scale-up maps exactly onto partitions [b*K, b*K + K - 1]."""

    RANGE = "Range"
    """Partition p holds the hash range [p/P, (p+1)/P), so that shards are hash ranges whatever P is."""

    UNKNOWN = "Unknown"
    """An adopted topic with data in it, routed by somebody else's hash: nothing can be assumed of it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of one storage topic: what is needed to route into it, and nothing else."""

    partitions: int
    scale_factor: int = 1
    routing: Routing = Routing.SHARD_CONSISTENT

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= HASH_SPACE:
            raise InvalidLayout(f"a topic has 1 to {HASH_SPACE} partitions, not {self.partitions}")
        if self.scale_factor < 1 or self.partitions % self.scale_factor:
            raise InvalidLayout(f"K={self.scale_factor} does not divide {self.partitions} partitions")
        # One shape, one value: layouts are compared with ==, and K means nothing to the other routings.
        if self.scale_factor != 1 and self.routing is not Routing.SHARD_CONSISTENT:
            raise InvalidLayout(
                f"only {Routing.SHARD_CONSISTENT} routing has a scale factor: K is 1 with {self.routing}, "
                f"not {self.scale_factor}"
            )

    @property
    def base(self) -> int:
        """B: the partition count that this layout was scaled up from."""
        return self.partitions // self.scale_factor


def group_hash(group_id: str) -> int:
    """Pulsar's `Murmur3_32Hash` of the partition key: UTF-8, seed 0, masked to 31 bits."""
    return mmh3.hash(group_id.encode(), 0, signed=False) & (HASH_SPACE - 1)


def partition_of_hash(h: int, layout: Layout) -> int:
    """The partition that a group with this hash is written to."""
    p, k = layout.partitions, layout.scale_factor
    match layout.routing:
        case Routing.SHARD_CONSISTENT:
            return (k * h) % p + (h // p) % k
        case Routing.RANGE:
            return h * p >> HASH_BITS
        case Routing.UNKNOWN:
            raise InvalidLayout("a topic with unknown routing cannot be written to through Millrace")


def partition_of(group_id: str, layout: Layout) -> int:
    """The partition that a group is written to."""
    return partition_of_hash(group_hash(group_id), layout)


def next_layout(previous: Layout | None, partitions: int, routing: Routing) -> Layout:
    """The layout of a storage topic appended after `previous`: its K keeps the base where it can.

    K is a matter of order, not only of load: K = 1 after a scaled-up topic is a new base, and every
    subscription with more than one shard has to cross it with a barrier.
    """
    if routing is not Routing.SHARD_CONSISTENT or previous is None:
        return Layout(partitions, 1, routing)
    if previous.routing is not Routing.SHARD_CONSISTENT or partitions % previous.base:
        return Layout(partitions, 1, routing)
    return Layout(partitions, partitions // previous.base, routing)


def layouts(partition_counts: Iterable[int], routing: Routing) -> tuple[Layout, ...]:
    """The layouts of a whole chain of storage topics."""
    chain: list[Layout] = []
    for partitions in partition_counts:
        chain.append(next_layout(chain[-1] if chain else None, partitions, routing))
    return tuple(chain)


def is_even_partition_count(partitions: int) -> bool:
    """Whether a count shards uniformly in many ways: 1, 2, 3 or a multiple of 4 or 6."""
    return partitions in (1, 2, 3) or (partitions > 0 and (partitions % 4 == 0 or partitions % 6 == 0))


def partitions_of_shard(shard: int, partitions: int, shard_count: int) -> range:
    """The slice of partitions that a shard owns; slices tile the topic also where the count does not divide.

    With more shards than partitions some slices are empty.
    """
    _check_shard_count(shard_count)
    if not 0 <= shard < shard_count:
        raise InvalidLayout(f"shard {shard} is not one of 0..{shard_count - 1}")
    return range(shard * partitions // shard_count, (shard + 1) * partitions // shard_count)


def shard_of_partition(partition: int, partitions: int, shard_count: int) -> int:
    """The inverse of `partitions_of_shard` (not `p * sc // P`, which is wrong where sc does not divide P)."""
    _check_shard_count(shard_count)
    if not 0 <= partition < partitions:
        raise InvalidLayout(f"partition {partition} is not one of 0..{partitions - 1}")
    return ((partition + 1) * shard_count - 1) // partitions


def shard_of(group_id: str, layout: Layout, shard_count: int) -> int:
    """The shard that delivers a group's messages from a topic with this layout."""
    return shard_of_partition(partition_of(group_id, layout), layout.partitions, shard_count)


def shard_consistent(a: Layout, b: Layout, shard_count: int) -> bool:
    """Whether every group has the same shard in `a` and in `b`, so that no barrier is needed between them.

    Never true when a group moves. Between neighbours in a chain of appended topics also never false when none
    does; between others it may be (4 -> 1 -> 2: every group of the third has the shard it had in the first).
    """
    _check_shard_count(shard_count)
    if Routing.UNKNOWN in (a.routing, b.routing):
        return False
    if shard_count == 1 or a == b:
        return True
    if a.routing is not b.routing:
        return False
    if a.routing is Routing.RANGE:
        return a.partitions % shard_count == 0 and b.partitions % shard_count == 0
    return a.base == b.base and a.base % shard_count == 0


def overlap(a: Layout, partition_a: int, b: Layout, partition_b: int) -> bool:
    """Whether a group can live in both partitions. Never false when one can; it may be true when none does.

    Exact for partition counts up to 4096 between Range topics, between ShardConsistent topics with K = 1, and
    between ShardConsistent topics of one base (as long as 2**31 hashes hold a full period of both).
    """
    if Routing.UNKNOWN in (a.routing, b.routing) or a.routing is not b.routing:
        return True
    if a.routing is Routing.RANGE:
        return partition_a * b.partitions < (partition_b + 1) * a.partitions and (
            partition_b * a.partitions < (partition_a + 1) * b.partitions
        )
    base_a, column_a = divmod(partition_a, a.scale_factor)
    base_b, column_b = divmod(partition_b, b.scale_factor)
    if a.base != b.base:
        return (base_a - base_b) % gcd(a.base, b.base) == 0
    # With one base B both layouts see h through q = h // B: a partition holds those q that fall, modulo
    # K * K, on the arc of K numbers from column * K on. Two partitions share a q iff their arcs meet on
    # the circle of the greatest common divisor of both periods.
    circle = gcd(a.scale_factor, b.scale_factor) ** 2
    distance = column_b * b.scale_factor - column_a * a.scale_factor
    return base_a == base_b and (distance % circle < a.scale_factor or -distance % circle < b.scale_factor)


def _check_shard_count(shard_count: int) -> None:
    if not 1 <= shard_count <= HASH_SPACE:
        raise InvalidLayout(f"a shard count is 1 to {HASH_SPACE}, not {shard_count}")
