"""Count how groups spread over the partitions and shards of a topic, and how many would move in a larger one.

For whoever plans to grow a topic: run it over the group ids that are really in use (or over made-up ones)
before appending a storage topic. It needs Spark and the group ids, and neither Pulsar nor Kubernetes.

    spark-submit route_census.py --input ids.txt --partitions 10 --k 5 --next-partitions 20 --shards 2 5

The last line of the output is the result as JSON. A shard count that is not `consistent` has to cross into
the next storage topic with a barrier (no shard begins before all have finished); `moved` says for how many
groups.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from millrace.core.errors import InvalidLayout
from millrace.core.routing import Layout, Routing, next_layout, shard_consistent, shard_of_partition
from millrace.spark.routing import partition_column


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; what cannot be is refused here, before Spark starts."""
    parser = argparse.ArgumentParser(prog="route_census.py", description=(__doc__ or "").partition("\n\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--input", metavar="PATH", help="file or folder with group ids, at any URL that Spark reads"
    )
    source.add_argument("--generate", metavar="N", type=_count, help="make up N group ids instead")
    parser.add_argument(
        "--format",
        choices=("text", "parquet"),
        default="text",
        help="of --input; text has one id a line (default)",
    )
    parser.add_argument(
        "--column", default="group_id", help="the column of a parquet input (default: %(default)s)"
    )
    parser.add_argument("--partitions", type=_count, required=True, metavar="P", help="of the topic as it is")
    parser.add_argument(
        "--k", type=_count, default=1, metavar="K", help="its scale factor (default: %(default)s)"
    )
    parser.add_argument(
        "--routing",
        choices=[routing.value for routing in Routing if routing is not Routing.UNKNOWN],
        default=Routing.SHARD_CONSISTENT.value,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--next-partitions", type=_count, metavar="P", help="of the storage topic to be appended"
    )
    parser.add_argument(
        "--shards", type=_count, nargs="+", default=[], metavar="N", help="shard counts of its subscriptions"
    )
    parser.add_argument(
        "--output", metavar="PATH", help="also write the result to this folder, as one line of text"
    )
    options = parser.parse_args(argv)
    try:
        options.layout = Layout(options.partitions, options.k, Routing(options.routing))
        options.next_layout = options.next_partitions and next_layout(
            options.layout, options.next_partitions, options.layout.routing
        )
        for shard_count in options.shards:
            shard_of_partition(0, options.layout.partitions, shard_count)
    except InvalidLayout as error:
        parser.error(str(error))
    return options


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count: expected 1 or more")
    return number


def group_ids(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Each group once, in the column `group_id`."""
    if options.generate:
        return spark.range(options.generate).select(F.format_string("group-%d", "id").alias("group_id"))
    if options.format == "parquet":
        ids = spark.read.parquet(options.input).select(F.col(options.column).cast("string").alias("group_id"))
    else:
        ids = spark.read.text(options.input).select(F.col("value").alias("group_id"))
    return ids.where("group_id <> ''").distinct()


def routed(ids: DataFrame, now: Layout, then: Layout | None) -> DataFrame:
    """How many groups go from each partition to each of the next topic (to the same, where there is none)."""
    here = partition_column(F.col("group_id"), now)
    there = partition_column(F.col("group_id"), then) if then else here
    return ids.select(here.alias("here"), there.alias("there")).groupBy("here", "there").count()


def census(
    rows: Iterable[tuple[int, int, int]], now: Layout, then: Layout | None, shard_counts: Sequence[int]
) -> dict[str, Any]:
    """Sum up rows of (partition, partition of the next topic, groups)."""
    here: Counter[int] = Counter()
    there: Counter[int] = Counter()
    owned = {shards: Counter[int]() for shards in shard_counts}
    moved = dict.fromkeys(shard_counts, 0)
    for partition, following, groups in rows:
        here[partition] += groups
        there[following] += groups
        for shards, owners in owned.items():
            owner = shard_of_partition(partition, now.partitions, shards)
            owners[owner] += groups
            if then and shard_of_partition(following, then.partitions, shards) != owner:
                moved[shards] += groups
    total = here.total()
    return {
        "groups": total,
        "topic": _topic(now, here),
        "next": then and _topic(then, there),
        "shards": [
            {
                "count": shards,
                "groups": [owners[shard] for shard in range(shards)],
                "consistent": then and shard_consistent(now, then, shards),
                "moved": then and moved[shards],
                "movedShare": then and (round(moved[shards] / total, 6) if total else 0.0),
            }
            for shards, owners in owned.items()
        ],
    }


def _topic(layout: Layout, groups: Counter[int]) -> dict[str, Any]:
    return {
        "partitions": layout.partitions,
        "k": layout.scale_factor,
        "routing": layout.routing.value,
        "groups": [groups[partition] for partition in range(layout.partitions)],
    }


def run(spark: SparkSession, options: argparse.Namespace) -> str:
    """Read, route, sum up, and write where that was asked for; the result as one line of JSON."""
    rows = routed(group_ids(spark, options), options.layout, options.next_layout)
    pairs = ((row["here"], row["there"], row["count"]) for row in rows.toLocalIterator())
    result = json.dumps(census(pairs, options.layout, options.next_layout, options.shards))
    if options.output:
        spark.createDataFrame([(result,)], "value string").coalesce(1).write.text(options.output)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Run as a Spark application; the master comes from spark-submit."""
    options = arguments(argv)
    # Workers have to run the interpreter that has the packages, which need not be the first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("route-census").getOrCreate()
    try:
        result = run(spark, options)
    finally:
        spark.stop()
    print(result, flush=True)


if __name__ == "__main__":
    main()
