"""What `millrace tail` shows of the messages it gets."""

from __future__ import annotations

import json

import pytest

from millrace.cli.tailing import Enough, Screen, Wish
from millrace.client.partitions import Message
from millrace.core.errors import InvalidGroupId
from millrace.core.positions import Position


def message(payload: str, position: Position, partition: int = 0, group_id: str = "g") -> Message:
    return Message(
        group_id=group_id,
        payload=payload.encode(),
        properties={},
        position=position,
        partition=partition,
        publish_time=0.0,
        message_id="",
    )


def payloads(output: str) -> list[str]:
    return [json.loads(line)["payload"] for line in output.splitlines()]


def test_a_message_that_comes_again_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Wish("a/b"), "json")
    first, second = Position(0, 5, 1, 0), Position(0, 5, 1, 1)
    for one in (message("1", first), message("2", second), message("1", first), message("2", second)):
        screen.show(one)
    assert payloads(capsys.readouterr().out) == ["1", "2"]


def test_partitions_and_storage_topics_have_positions_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen(Wish("a/b"), "json")
    screen.show(message("1", Position(0, 9, 9)))
    screen.show(message("2", Position(0, 1, 1), partition=1))
    screen.show(message("3", Position(1, 1, 1)))
    assert payloads(capsys.readouterr().out) == ["1", "2", "3"]


def test_the_limit_counts_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Wish("a/b", group_id="g", limit=2), "json")
    screen.show(message("1", Position(0, 1, 1)))
    screen.show(message("1", Position(0, 1, 1)))
    screen.show(message("other", Position(0, 1, 2), group_id="h"))
    with pytest.raises(Enough):
        screen.show(message("2", Position(0, 1, 3)))
    assert payloads(capsys.readouterr().out) == ["1", "2"]


def test_a_group_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidGroupId):
        Wish("a/b", group_id="").check()
