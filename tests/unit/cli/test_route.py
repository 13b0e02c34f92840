"""`millrace route`: the answer of the core, in words and as JSON."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.core.routing import Layout, Routing, group_hash, partition_of, shard_of

RUNNER = CliRunner()


def test_it_says_partition_base_and_shard() -> None:
    result = RUNNER.invoke(app, ["route", "customer-42", "--partitions", "12", "--k", "6", "--shards", "2"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "group      customer-42 (hash 220234549)",
        "routing    ShardConsistent, P = 12, K = 6",
        "partition  7 of 0..11",
        "base       1 of 0..1",
        "shard      1 of 0..1",
    ]


def test_without_a_shard_count_there_is_no_shard() -> None:
    text = RUNNER.invoke(app, ["route", "g", "--partitions", "4"])
    assert "shard " not in text.stdout
    document = json.loads(RUNNER.invoke(app, ["route", "g", "--partitions", "4", "-o", "json"]).stdout)
    assert (document["shards"], document["shard"]) == (None, None)


@pytest.mark.parametrize(
    ("layout", "arguments"),
    [
        (Layout(12, 6), ["--partitions", "12", "--k", "6"]),
        (Layout(7), ["--partitions", "7"]),
        (Layout(10, 1, Routing.RANGE), ["--partitions", "10", "--routing", "Range"]),
        (Layout(10, 1, Routing.RANGE), ["--partitions", "10", "--routing", "range"]),
    ],
)
@pytest.mark.parametrize("group_id", ["a", "customer-42", "größe", "with space", "tab\tand\nnewline"])
def test_the_json_is_what_the_core_answers(group_id: str, layout: Layout, arguments: list[str]) -> None:
    result = RUNNER.invoke(app, ["route", group_id, *arguments, "--shards", "3", "--output", "json"])
    assert result.exit_code == 0, result.stderr
    partition = partition_of(group_id, layout)
    assert json.loads(result.stdout) == {
        "group": group_id,
        "hash": group_hash(group_id),
        "routing": layout.routing.value,
        "partitions": layout.partitions,
        "k": layout.scale_factor,
        "base": layout.base,
        "shards": 3,
        "partition": partition,
        "basePartition": partition // layout.scale_factor,
        "shard": shard_of(group_id, layout, 3),
    }


def test_a_group_id_cannot_act_on_the_terminal() -> None:
    result = RUNNER.invoke(app, ["route", "a\x1b[31m\nb", "--partitions", "1"])
    assert result.stdout.startswith(r"group      a\x1b[31m\nb (hash ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["g"], "missing option '--partitions' / '-p'; see `millrace route --help`"),
        (["--partitions", "4"], "missing argument 'GROUP_ID'; see `millrace route --help`"),
        (["", "--partitions", "4"], "the group id is empty"),
        (["g\udcff", "--partitions", "4"], "the group id has a lone surrogate at index 1"),
        (["g", "--partitions", "0"], "a topic has 1 to 2147483648 partitions, not 0"),
        (["g", "--partitions", "99999999999"], "a topic has 1 to 2147483648 partitions, not 99999999999"),
        (["g", "--partitions", "12", "--k", "5"], "K=5 does not divide 12 partitions"),
        (["g", "--partitions", "12", "--k", "0"], "K=0 does not divide 12 partitions"),
        (["g", "--partitions", "4", "--k", "2", "--routing", "Range"], "only ShardConsistent routing has"),
        (["g", "--partitions", "4", "--shards", "0"], "a shard count is 1 to 2147483648, not 0"),
        (["g", "--partitions", "4", "--routing", "Unknown"], "invalid value for '--routing': "),
        (["g", "--partitions", "4", "--output", "xml"], "invalid value for '--output' / '-o': "),
        (["g", "--partitions", "four"], "invalid value for '--partitions' / '-p': "),
    ],
)
def test_bad_input_is_told_in_one_sentence(arguments: list[str], sentence: str) -> None:
    result = RUNNER.invoke(app, ["route", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"millrace: {sentence}")
    assert len(result.stderr.splitlines()) == 1
