"""How many shards a subscription has: what was asked for, made to fit.

A count fits if it divides the partitions of every storage topic that is not drained: then each shard has
equally many. One that does not is raised to the next that does, so that an autoscaler that asks for a little
more gets a little more, and converges; beyond the largest there is only that one. 0 means suspended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import gcd

from millrace.api.reasons import Reason
from millrace.core.errors import InvalidLayout


@dataclass(frozen=True, slots=True)
class ShardCount:
    """What was asked for, and what it becomes. `reason` is None where that is the same."""

    wanted: int
    effective: int
    reason: Reason | None = None
    message: str = ""


def permitted(partition_counts: Iterable[int]) -> tuple[int, ...]:
    """Every count that divides all of these, in order. 1 is always among them."""
    counts = tuple(partition_counts)
    if not counts or min(counts) < 1:
        raise InvalidLayout(f"a shard count needs storage topics with partitions, not {list(counts)}")
    common = reduce(gcd, counts)
    return tuple(count for count in range(1, common + 1) if common % count == 0)


def fitted(wanted: int, partition_counts: Iterable[int], *, allow_uneven: bool = False) -> ShardCount:
    """The count to run with, given the partition counts of all storage topics that are not drained."""
    if wanted < 0:
        raise InvalidLayout(f"a shard count is 0 or more, not {wanted}")
    counts = tuple(partition_counts)
    fitting = permitted(counts)
    if wanted == 0 or allow_uneven or wanted in fitting:
        return ShardCount(wanted, wanted)
    higher = [count for count in fitting if count > wanted]
    listed = _listed(counts)
    if higher:
        return ShardCount(
            wanted,
            higher[0],
            Reason.RAISED_TO_FIT,
            f"shardCount {wanted} does not divide {listed} partitions evenly, and was raised to {higher[0]}",
        )
    if wanted > min(counts):
        why = f"shardCount {wanted} is more than there are partitions ({listed})"
    else:
        why = f"no count from {wanted} on divides {listed} partitions evenly"
    return ShardCount(
        wanted, fitting[-1], Reason.CLAMPED_TO_PARTITIONS, f"{why}: there are {fitting[-1]} shards"
    )


def _listed(counts: tuple[int, ...]) -> str:
    return " and ".join(str(count) for count in sorted(set(counts)))
