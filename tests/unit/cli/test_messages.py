"""How messages are shown: whatever they hold, a line stays a line and a terminal is left alone."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from millrace.cli.messages import document, line
from millrace.client.partitions import Message
from millrace.core.positions import Position

MESSAGE = Message(
    group_id="customer-42",
    payload=b"hello",
    properties={"b": "2", "a": "1"},
    position=Position(1, 23, 4, 0),
    partition=7,
    publish_time=1700000000.5,
    message_id="AbC:9",
)


def test_a_message_as_a_document() -> None:
    assert document(MESSAGE) == {
        "group": "customer-42",
        "payload": "hello",
        "payloadBase64": None,
        "properties": {"a": "1", "b": "2"},
        "position": "1:23:4:0",
        "partition": 7,
        "publishTime": 1700000000.5,
        "messageId": "AbC:9",
    }


def test_bytes_that_are_no_text_survive_in_a_document() -> None:
    payload = bytes(range(256))
    shown = json.loads(json.dumps(document(replace(MESSAGE, payload=payload))))
    assert shown["payload"] is None
    assert base64.b64decode(shown["payloadBase64"]) == payload


def test_a_message_as_a_line() -> None:
    assert line(MESSAGE).plain == "1:23:4:0  customer-42  hello  a=1  b=2"


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"a\nb\tc\r", r"a\nb\tc\r"),
        (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m\u202e".encode(), r"\x9b31m\u202e"),
        (b"\xff\x00", r"\xff\x00"),
        ("[red]größe 測試[/]".encode(), "[red]größe 測試[/]"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(payload: bytes, shown: str) -> None:
    plain = line(replace(MESSAGE, payload=payload, properties={})).plain
    assert plain == f"1:23:4:0  customer-42  {shown}"
