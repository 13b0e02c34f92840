"""The commands that connect, on a real broker, as processes of their own."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pulsar

from millrace.core.descriptor import begin_switch, complete_step
from millrace.core.names import descriptor_topic_name
from millrace.core.positions import Position
from millrace.core.routing import Layout, partition_of
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.termination import seal_partition
from tests.integration.cli.process import run, start
from tests.support import pulsar as support
from tests.support.waiting import eventually

GROUP = "customer-42"


def first_storage_topic(composite: str) -> str:
    namespace, name = composite.split("/")
    return f"persistent://{support.NAMESPACE}/{namespace}.{name}-0"


async def stored(composite: str, count: int) -> list[pulsar.Message]:
    """The first messages of the partition that GROUP is routed to."""
    partition = partition_of(GROUP, Layout(2))
    async with support.open_client() as client:
        reader = await blocking(
            client.create_reader,
            f"{first_storage_topic(composite)}-partition-{partition}",
            pulsar.MessageId.earliest,
        )
        return [await blocking(reader.read_next, 15_000) for _ in range(count)]


async def nothing_is_stored(admin: Admin, composite: str) -> bool:
    topic = first_storage_topic(composite)
    stats = [await admin.internal_stats(f"{topic}-partition-{index}") for index in range(2)]
    return all(partition.last_confirmed.entry < 0 for partition in stats)


async def switch(admin: Admin, composite: str) -> None:
    """Move producers to the second storage topic, as the operator does."""
    where = descriptor_topic_name(support.NAMESPACE, *composite.split("/"))
    async with support.open_client() as client:
        found = await descriptors.read(client, where)
        assert found is not None
        begun = begin_switch(found, 1)
        await descriptors.publish(client, where, begun, expected_generation=found.generation)
        topic = found.storage_topics[0]
        ends = [await seal_partition(admin, topic.partition_topic(index)) for index in range(2)]
        await descriptors.publish(
            client, where, complete_step(begun, ends), expected_generation=begun.generation
        )


# topic


async def test_a_composite_topic_is_shown_as_text(composite: str) -> None:
    ended = await run("topic", composite)
    assert (ended.code, ended.err) == (0, "")
    heading, _, _, columns, *rows = ended.out.splitlines()
    assert heading == f"{composite}: ShardConsistent routing, generation 2, produce pointer 0"
    assert columns.split() == ["INDEX", "STATE", "PARTITIONS", "K", "TOPIC"]
    first = first_storage_topic(composite)
    assert [row.split() for row in rows] == [
        ["0", "producing", "2", "1", first],
        ["1", "appended", "12", "6", f"{first.removesuffix('0')}1"],
    ]


async def test_a_composite_topic_is_shown_as_json(composite: str) -> None:
    ended = await run("topic", composite, "--output", "json")
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    assert document["descriptorTopic"] == descriptor_topic_name(support.NAMESPACE, *composite.split("/"))
    assert document["producePointer"] == 0
    assert [(topic["partitions"], topic["k"]) for topic in document["storageTopics"]] == [(2, 1), (12, 6)]


async def test_the_full_name_of_the_descriptor_topic_will_do(composite: str) -> None:
    where = descriptor_topic_name(support.NAMESPACE, *composite.split("/"))
    ended = await run("topic", where, "--pulsar-namespace", "not/used")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(composite)


async def test_a_topic_that_is_not_there_is_a_failure(admin: Admin) -> None:
    topic = support.fresh_topic("cli-missing")
    ended = await run("topic", topic)
    await support.remove(admin, topic)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"millrace: there is no composite topic behind {topic}: ")
    assert len(ended.err.splitlines()) == 1


async def test_a_refused_token_is_a_failure(composite: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("nonsense")
    ended = await run("topic", composite, "--token-file", str(token), "--timeout", "3")
    assert (ended.code, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == 1, ended.err


# produce


async def test_one_message_is_stored_with_its_group_and_properties(composite: str) -> None:
    ended = await run(
        "produce",
        composite,
        "--group",
        GROUP,
        "--payload",
        "päyload",
        "--property",
        "a=1",
        "--property",
        "b=x=y",
        "-o",
        "json",
    )
    assert (ended.code, ended.err) == (0, "")
    (message,) = await stored(composite, 1)
    assert message.data() == "päyload".encode()
    assert message.partition_key() == GROUP
    assert {"a": "1", "b": "x=y"}.items() <= message.properties().items()
    found = message.message_id()
    answer = json.loads(ended.out)
    assert answer["group"] == GROUP
    assert Position.parse(answer["position"]).entry_id == (found.ledger_id(), found.entry_id())


async def test_each_line_is_a_message_in_order_also_an_empty_one_and_the_last(composite: str) -> None:
    lines = [b"one", b"", "zwölf".encode(), b"\xff\r", b"last"]
    ended = await run("produce", composite, "--group", GROUP, stdin=b"\n".join(lines))
    assert (ended.code, ended.err) == (0, "")
    positions = [Position.parse(line.removeprefix("stored at ")) for line in ended.out.splitlines()]
    assert positions == sorted(positions)
    assert len(positions) == len(lines)
    assert [message.data() for message in await stored(composite, len(lines))] == lines


async def test_more_lines_than_may_be_under_way_all_arrive_in_order(composite: str) -> None:
    lines = [str(number).encode() for number in range(5000)]
    ended = await run("produce", composite, "--group", GROUP, stdin=b"\n".join(lines) + b"\n")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == len(lines)
    assert [message.data() for message in await stored(composite, len(lines))] == lines


async def test_a_typed_line_is_answered_before_the_next_one_is_typed(composite: str) -> None:
    running = await start("produce", composite, "--group", GROUP)
    for text in ("first\n", "second\n"):
        running.type(text)
        assert (await running.line()).startswith("stored at 0:")
    ended = await running.ended()
    assert (ended.code, ended.out) == (0, "")


async def test_ctrl_c_while_it_waits_for_a_line_ends_it_cleanly(composite: str) -> None:
    running = await start("produce", composite, "--group", GROUP)
    running.type("first\n")
    assert (await running.line()).startswith("stored at 0:")
    running.process.send_signal(signal.SIGINT)
    ended = await running.exited()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


async def test_nothing_is_sent_on_bad_input(admin: Admin, composite: str) -> None:
    for bad in (
        ["--group", ""],
        ["--group", "x" * 1025],
        ["--group", GROUP, "--property", "novalue"],
        ["--group", GROUP, "--property", "a=1", "--property", "a=2"],
        ["--group", GROUP, "--property", "mr=mine"],
        ["--group", GROUP, "--output", "xml"],
    ):
        for payload in (["--payload", "x"], []):
            ended = await run("produce", composite, *bad, *payload, stdin=b"one\ntwo\n")
            assert (ended.code, ended.out) == (2, ""), bad
            assert len(ended.err.splitlines()) == 1, ended.err
            assert ended.err.startswith("millrace: ")
    assert await nothing_is_stored(admin, composite)


async def test_lines_before_one_that_is_too_long_are_stored_and_reported(composite: str) -> None:
    too_long = b"x" * (6 * 1024 * 1024)
    ended = await run("produce", composite, "--group", GROUP, stdin=b"one\n" + too_long + b"\nthree\n")
    assert ended.code == 2
    assert len(ended.out.splitlines()) == 1
    assert ended.err == "millrace: line 2 has more than 5242880 bytes; send less, or a reference to it\n"
    assert [message.data() for message in await stored(composite, 1)] == [b"one"]


# tail


async def test_what_was_produced_is_shown_from_the_earliest(composite: str) -> None:
    await run("produce", composite, "-g", GROUP, "--property", "a=1", stdin=b"one\n\x1b[31mtwo\n\xff\n")
    text = await run("tail", composite, "--from", "earliest", "--limit", "3")
    assert (text.code, text.err) == (0, "")
    assert [line.split("  ", 1)[1] for line in text.out.splitlines()] == [
        f"{GROUP}  one  a=1",
        rf"{GROUP}  \x1b[31mtwo  a=1",
        rf"{GROUP}  \xff  a=1",
    ]
    documents = await run("tail", composite, "--from", "earliest", "--limit", "3", "--output", "json")
    shown = [json.loads(line) for line in documents.out.splitlines()]
    assert [message["payload"] for message in shown] == ["one", "\x1b[31mtwo", None]
    assert shown[2]["payloadBase64"] == "/w=="
    assert shown[0]["properties"] == {"a": "1"}
    assert [message["position"] for message in shown] == [
        line.split("  ", 1)[0] for line in text.out.splitlines()
    ]


async def test_only_the_messages_of_a_group_are_shown_if_one_is_given(composite: str) -> None:
    for group in ("a", "b", "c", "b"):
        await run("produce", composite, "-g", group, "--payload", f"of {group}")
    ended = await run("tail", composite, "--from", "earliest", "-g", "b", "-n", "2", "-o", "json")
    assert [json.loads(line)["payload"] for line in ended.out.splitlines()] == ["of b", "of b"]


async def test_a_tail_goes_on_across_a_switch_with_every_group_in_order(admin: Admin, composite: str) -> None:
    tail = await start("tail", composite, "--from", "earliest", "--limit", "40", "--output", "json")
    groups = [f"g{number}" for number in range(5)]
    for group in groups:
        await run("produce", composite, "-g", group, stdin=b"0\n1\n2\n3\n")
    await switch(admin, composite)
    for group in groups:
        await run("produce", composite, "-g", group, stdin=b"4\n5\n6\n7\n")
    ended = await tail.ended()
    assert (ended.code, ended.err) == (0, "")
    shown = [json.loads(line) for line in ended.out.splitlines()]
    assert {message["position"].split(":")[0] for message in shown} == {"0", "1"}
    for group in groups:
        assert [m["payload"] for m in shown if m["group"] == group] == list("01234567")


async def test_latest_shows_only_what_is_written_from_then_on(composite: str) -> None:
    await run("produce", composite, "-g", GROUP, "--payload", "old")
    tail = await start("tail", composite, "--from", "latest", "--limit", "1", "--output", "json")
    shown = asyncio.ensure_future(tail.line())
    producer = await start("produce", composite, "-g", GROUP)
    while not shown.done():  # it does not say when it listens: something is written until it hears
        producer.type("new\n")
        await producer.line()
    assert json.loads(await shown)["payload"] == "new"
    assert (await tail.ended()).code == 0
    assert (await producer.ended()).code == 0


async def test_latest_is_the_end_of_the_newest_storage_topic_also_after_a_switch(
    admin: Admin, composite: str
) -> None:
    await run("produce", composite, "-g", GROUP, "--payload", "old")
    await switch(admin, composite)
    await run("produce", composite, "-g", GROUP, "--payload", "also old")
    tail = await start("tail", composite, "--from", "latest", "--limit", "1", "--output", "json")
    shown = asyncio.ensure_future(tail.line())
    producer = await start("produce", composite, "-g", GROUP)
    while not shown.done():
        producer.type("new\n")
        await producer.line()
    assert json.loads(await shown)["payload"] == "new"
    assert (await tail.ended()).code == 0
    assert (await producer.ended()).code == 0


async def test_a_tail_from_the_latest_goes_on_across_a_switch_also_in_partitions_that_were_quiet(
    admin: Admin, composite: str
) -> None:
    await run("produce", composite, "-g", GROUP, "--payload", "old")
    tail = await start("tail", composite, "--from", "latest", "--output", "json")
    heard = asyncio.ensure_future(tail.line())
    producer = await start("produce", composite, "-g", GROUP)  # one group: the other partition is quiet
    while not heard.done():
        producer.type("before\n")
        await producer.line()
    await switch(admin, composite)
    producer.type("after\n")
    assert (await producer.line()).startswith("stored at 1:")
    assert (await producer.ended()).code == 0
    shown = [json.loads(await heard)["payload"]]
    while shown[-1] != "after":
        shown.append(json.loads(await tail.line())["payload"])
    assert set(shown[:-1]) == {"before"}
    tail.process.send_signal(signal.SIGINT)
    ended = await tail.exited()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


async def test_ctrl_c_ends_a_tail_cleanly(composite: str) -> None:
    await run("produce", composite, "-g", GROUP, "--payload", "x")
    tail = await start("tail", composite, "--from", "earliest")
    assert (await tail.line()).endswith(f"  {GROUP}  x\n")
    tail.process.send_signal(signal.SIGINT)
    ended = await tail.exited()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


async def test_a_tail_leaves_no_subscription_behind(admin: Admin, composite: str) -> None:
    await run("produce", composite, "-g", GROUP, "--payload", "x")
    assert (await run("tail", composite, "--from", "earliest", "-n", "1")).code == 0

    async def none_is_left() -> bool:
        return await admin.subscriptions(first_storage_topic(composite)) == []

    await eventually(none_is_left)
