"""Columns in Spark get the very answers of the pure routing functions."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from millrace.core.errors import InvalidLayout
from millrace.core.routing import (
    HASH_SPACE,
    Layout,
    Routing,
    group_hash,
    partition_of,
    partition_of_hash,
    shard_of,
    shard_of_partition,
)
from millrace.spark.routing import (
    hash_column,
    partition_column,
    partitions_of_hashes,
    shard_column,
    shards_of_partitions,
)

LAYOUTS = [
    Layout(10, 5),
    Layout(7),
    Layout(4096, 64),
    Layout(12, 1, Routing.RANGE),
    Layout(1, 1, Routing.RANGE),
]
ODD_IDS = ["", " ", "a", "order-42", "Grüße", "日本語", "🚲", "e\u0301", "\u0000", "a\nb", "x" * 1024]


def random_ids(count: int) -> list[str]:
    draw = random.Random(11)
    alphabets = ["abcdefghijklmnopqrstuvwxyz0123456789-", "äöüßéñøł", "中文字符漢字", "🚲🚀🌵"]
    return [
        "".join(draw.choices(alphabets[min(draw.randrange(12), 3)], k=draw.randrange(1, 24)))
        for _ in range(count)
    ]


def test_a_hundred_thousand_random_groups_are_routed_alike(spark: SparkSession) -> None:
    ids = [*ODD_IDS, *random_ids(100_000)]
    group = F.col("id")
    columns = [hash_column(group)]
    for layout in LAYOUTS:
        columns += [partition_column(group, layout), shard_column(group, layout, 3)]
    rows = spark.createDataFrame([(i,) for i in ids], "id string").select("id", *columns).collect()
    assert [row[0] for row in rows] == ids
    for group_id, h, *routed in rows:
        expected: list[int] = []
        for layout in LAYOUTS:
            expected += [partition_of(group_id, layout), shard_of(group_id, layout, 3)]
        assert h == group_hash(group_id)
        assert routed == expected


def test_nulls_stay_null_among_others(spark: SparkSession) -> None:
    ids = [None, "a", None, ""]
    group = F.col("id")
    layout = Layout(10, 5)
    rows = (
        spark.createDataFrame([(i,) for i in ids], "id string")
        .select(hash_column(group), partition_column(group, layout), shard_column(group, layout, 5))
        .collect()
    )
    routed = [
        None if i is None else (group_hash(i), partition_of(i, layout), shard_of(i, layout, 5)) for i in ids
    ]
    assert [tuple(row) for row in rows] == [each or (None, None, None) for each in routed]


def test_a_column_of_nothing_is_routed_to_nothing(spark: SparkSession) -> None:
    none = spark.createDataFrame([(None,)], "id string")
    assert none.select(partition_column(F.col("id"), Layout(4))).collect()[0][0] is None
    assert none.where("id is not null").select(hash_column(F.col("id"))).collect() == []


def test_columns_have_names_and_types_that_can_be_joined(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a",)], "id string").select(
        partition_column(F.col("id"), Layout(4)).alias("p")
    )
    assert frame.dtypes == [("p", "bigint")]


def test_an_impossible_routing_is_refused_before_any_job_runs(spark: SparkSession) -> None:
    with pytest.raises(InvalidLayout, match="cannot be written to"):
        partition_column(F.col("id"), Layout(4, 1, Routing.UNKNOWN))
    with pytest.raises(InvalidLayout, match="cannot be written to"):
        shard_column(F.col("id"), Layout(4, 1, Routing.UNKNOWN), 2)
    with pytest.raises(InvalidLayout, match="shard count"):
        shard_column(F.col("id"), Layout(4), 0)


counts = st.integers(1, HASH_SPACE)
large_layouts = st.one_of(
    counts.map(lambda p: Layout(p, p)),
    counts.map(Layout),
    counts.map(lambda p: Layout(p, 1, Routing.RANGE)),
    st.builds(lambda base, k: Layout(base * k, k), st.integers(1, 2**15), st.integers(1, 2**16)),
)


@given(st.lists(st.integers(0, HASH_SPACE - 1), min_size=1), large_layouts, counts)
def test_not_even_the_largest_counts_overflow(hashes: list[int], layout: Layout, shard_count: int) -> None:
    partitions = partitions_of_hashes(np.array(hashes, dtype=np.int64), layout)
    expected = [partition_of_hash(h, layout) for h in hashes]
    assert partitions.tolist() == expected
    shards = shards_of_partitions(partitions, layout.partitions, shard_count)
    assert shards.tolist() == [shard_of_partition(p, layout.partitions, shard_count) for p in expected]


def test_without_pyspark_the_error_says_what_to_install(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('No module named pyspark')\n")
    environment = spark_environment | {"PYTHONPATH": f"{tmp_path}:{spark_environment['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", "import millrace.spark"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "pip install millrace[spark]" in done.stderr
