"""Columns of group ids to columns of hashes, partitions and shards.

The arithmetic is numpy's on 64-bit integers, which wrap silently: hashes and counts have at most 31 bits, so
that every product fits. Nulls stay null. Executors need this package and mmh3.
"""

from __future__ import annotations

from collections.abc import Callable

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf

from millrace.core.routing import (
    HASH_BITS,
    HASH_SPACE,
    Layout,
    Routing,
    partition_of_hash,
    shard_of_partition,
)

Integers = npt.NDArray[np.int64]


def hash_column(group_col: Column) -> Column:
    """`group_hash` of each group id, as bigint."""
    return _routed(lambda hashes: hashes, group_col)


def partition_column(group_col: Column, layout: Layout) -> Column:
    """`partition_of` each group id, as bigint."""
    partition_of_hash(0, layout)  # a layout that cannot be written to is refused here, not on an executor
    return _routed(lambda hashes: partitions_of_hashes(hashes, layout), group_col)


def shard_column(group_col: Column, layout: Layout, shard_count: int) -> Column:
    """`shard_of` each group id, as bigint."""
    partition_of_hash(0, layout)
    shard_of_partition(0, layout.partitions, shard_count)

    def shards(hashes: Integers) -> Integers:
        return shards_of_partitions(partitions_of_hashes(hashes, layout), layout.partitions, shard_count)

    return _routed(shards, group_col)


def partitions_of_hashes(hashes: Integers, layout: Layout) -> Integers:
    """`partition_of_hash`, for many."""
    p, k = np.int64(layout.partitions), np.int64(layout.scale_factor)
    if layout.routing is Routing.RANGE:
        return hashes * p >> HASH_BITS
    return (k * hashes) % p + (hashes // p) % k


def shards_of_partitions(partitions: Integers, count: int, shard_count: int) -> Integers:
    """`shard_of_partition`, for many partitions of a topic with `count` of them."""
    return ((partitions + 1) * np.int64(shard_count) - 1) // np.int64(count)


def _routed(route: Callable[[Integers], Integers], group_col: Column) -> Column:
    def evaluate(group_ids: pa.Array) -> pa.Array:
        # A null gets the hash of the empty id for the moment, so that the numbers stay dense.
        hashes = np.fromiter(
            (mmh3.hash(group_id or "", 0, signed=False) for group_id in group_ids.to_pylist()),
            dtype=np.int64,
            count=len(group_ids),
        )
        routed = route(hashes & (HASH_SPACE - 1))
        return pa.array(routed, type=pa.int64(), mask=np.asarray(group_ids.is_null()))

    return arrow_udf(evaluate, "bigint")(group_col)
