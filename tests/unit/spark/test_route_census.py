"""The census of groups, run as the Spark application that it is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.core.routing import Layout, Routing, partition_of, shard_of

APP = Path(__file__).parents[3] / "spark-apps" / "route_census.py"


def load(path: Path) -> Any:
    """The application as a module: its folder is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


route_census = load(APP)


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(APP), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def census(spark: SparkSession, *arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(route_census.run(spark, route_census.arguments(arguments)))
    return result


def test_it_counts_made_up_groups_and_those_that_would_move(spark_environment: dict[str, str]) -> None:
    done = run(
        spark_environment,
        *("--generate", "20000", "--partitions", "10", "--k", "5", "--next-partitions", "20"),
        *("--shards", "1", "2", "5"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    now, then = Layout(10, 5), Layout(20, 10)
    ids = [f"group-{n}" for n in range(20_000)]
    here = Counter(partition_of(i, now) for i in ids)
    there = Counter(partition_of(i, then) for i in ids)
    assert result["groups"] == 20_000
    assert result["topic"] == {
        "partitions": 10,
        "k": 5,
        "routing": "ShardConsistent",
        "groups": [here[p] for p in range(10)],
    }
    assert result["next"]["k"] == 10
    assert result["next"]["groups"] == [there[p] for p in range(20)]
    for entry in result["shards"]:
        shards = entry["count"]
        owners = Counter(shard_of(i, now, shards) for i in ids)
        moved = sum(shard_of(i, now, shards) != shard_of(i, then, shards) for i in ids)
        assert entry["groups"] == [owners[s] for s in range(shards)]
        assert entry["moved"] == moved
    assert [entry["consistent"] for entry in result["shards"]] == [True, True, False]
    assert result["shards"][2]["movedShare"] == pytest.approx(0.6, abs=0.02)


def test_it_reads_each_group_of_a_text_file_once_and_writes_the_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids = ["a", "b", "Grüße", "日本語"]
    (tmp_path / "ids.txt").write_text("\n".join([*ids, "", "a", "b"]) + "\n")
    result = census(
        spark,
        *("--input", str(tmp_path / "ids.txt"), "--partitions", "6", "--routing", "Range", "--shards", "3"),
        *("--output", str(tmp_path / "out")),
    )
    layout = Layout(6, 1, Routing.RANGE)
    owners = Counter(shard_of(i, layout, 3) for i in ids)
    assert result["groups"] == 4
    assert result["next"] is None
    assert result["shards"] == [
        {
            "count": 3,
            "groups": [owners[s] for s in range(3)],
            "consistent": None,
            "moved": None,
            "movedShare": None,
        }
    ]
    (part,) = (tmp_path / "out").glob("part-*")
    assert json.loads(part.read_text()) == result


def test_it_reads_a_column_of_a_parquet_file(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "ids.parquet")
    rows = [(n % 50, "x") for n in range(200)]
    spark.createDataFrame([*rows, (None, "y")], "customer int, other string").write.parquet(path)
    result = census(
        spark,
        *("--input", path, "--format", "parquet", "--column", "customer", "--partitions", "4"),
    )
    here = Counter(partition_of(str(n), Layout(4)) for n in range(50))
    assert result["topic"]["groups"] == [here[p] for p in range(4)]
    assert result["shards"] == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--generate", "5", "--partitions", "10", "--k", "3"], "K=3 does not divide 10 partitions"),
        (["--generate", "5", "--partitions", "10", "--k", "5", "--routing", "Range"], "K is 1 with Range"),
        (["--generate", "0", "--partitions", "10"], "expected 1 or more"),
        (["--generate", "5", "--partitions", "4", "--shards", "0"], "expected 1 or more"),
        (["--generate", "5", "--partitions", "four"], "invalid"),
        (["--partitions", "4"], "one of the arguments --input --generate is required"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit) as exited:
        route_census.main(arguments)
    assert exited.value.code == 2
    assert reason in capsys.readouterr().err


def test_help_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        route_census.main(["--help"])
    assert exited.value.code == 0
    out = capsys.readouterr().out
    assert "how many would move" in " ".join(out.split())
    assert "--next-partitions" in out


def test_no_groups_at_all_are_counted_as_none() -> None:
    result = route_census.census([], Layout(2), Layout(4, 2), [2])
    assert result["groups"] == 0
    assert result["shards"] == [
        {"count": 2, "groups": [0, 0], "consistent": True, "moved": 0, "movedShare": 0.0}
    ]
