"""Log lines: that a machine can read each, and that each says which object it is about."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millrace.logs import OBJECT, JsonFormatter, TextFormatter, configure

QUIET = ("kopf", "aiohttp.access", "asyncio")


@contextmanager
def about(name: str) -> Iterator[None]:
    token = OBJECT.set(name)
    try:
        yield
    finally:
        OBJECT.reset(token)


def record(message: str, *args: object, level: int = logging.INFO, failed: bool = False) -> logging.LogRecord:
    failure: Any = None
    if failed:
        try:
            raise ValueError("broken")
        except ValueError:
            failure = sys.exc_info()
    made = logging.LogRecord("millrace.test", level, "file.py", 1, message, args, failure)
    made.created = 1_772_366_400.25
    return made


def as_json(made: logging.LogRecord) -> dict[str, str]:
    line = JsonFormatter().format(made)
    assert "\n" not in line, "one record is one line"
    read: dict[str, str] = json.loads(line)
    return read


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in (*QUIET, "")}
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_a_line_for_machines_has_time_level_logger_and_message() -> None:
    assert as_json(record("sealed %d of %d", 3, 4)) == {
        "time": "2026-03-01T12:00:00.250+00:00",
        "level": "info",
        "logger": "millrace.test",
        "message": "sealed 3 of 4",
    }


def test_a_line_for_machines_names_the_object() -> None:
    with about("CompositeTopic shop/orders"):
        assert as_json(record("sealed"))["object"] == "CompositeTopic shop/orders"
    assert "object" not in as_json(record("sealed"))


def test_a_traceback_stays_within_its_line() -> None:
    line = as_json(record("first\nsecond", level=logging.ERROR, failed=True))
    assert line["message"] == "first\nsecond"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: broken")


def test_words_of_every_language_can_be_read_as_they_are() -> None:
    assert "Größe 注文" in JsonFormatter().format(record("Größe 注文"))


def test_a_line_for_people_ends_with_the_object() -> None:
    formatter = TextFormatter("%(levelname)s %(message)s")
    assert formatter.format(record("sealed")) == "INFO sealed"
    with about("CompositeTopic shop/orders"):
        assert formatter.format(record("sealed")) == "INFO sealed  [CompositeTopic shop/orders]"


def test_a_traceback_for_people_comes_below_the_line_with_the_object() -> None:
    with about("CompositeTopic shop/orders"):
        lines = TextFormatter("%(message)s").format(record("failed", failed=True)).splitlines()
    assert lines[0] == "failed  [CompositeTopic shop/orders]"
    assert lines[-1] == "ValueError: broken"


async def test_objects_that_are_worked_on_side_by_side_are_not_mixed_up() -> None:
    both = asyncio.Barrier(2)

    async def work(name: str) -> str:
        with about(name):
            await both.wait()
            return as_json(record("working"))["object"]

    async with asyncio.timeout(5):
        assert await asyncio.gather(work("a"), work("b")) == ["a", "b"]


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize(("log_format", "formatter"), [("json", JsonFormatter), ("text", TextFormatter)])
def test_whatever_handlers_there_were_are_replaced(log_format: str, formatter: type) -> None:
    root = logging.getLogger()
    root.addHandler(logging.NullHandler())
    configure(log_format, "DEBUG")
    [handler] = root.handlers
    assert type(handler.formatter) is formatter
    assert root.level == logging.DEBUG


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize(
    ("level", "expected"), [("DEBUG", logging.WARNING), ("INFO", logging.WARNING), ("ERROR", logging.ERROR)]
)
def test_libraries_that_tell_of_everything_are_heard_from_warnings_on(level: str, expected: int) -> None:
    configure("json", level)
    assert {logging.getLogger(name).level for name in QUIET} == {expected}
