"""Lines of standard input: from pipes and from files, whole whatever the pieces they come in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli.failures import BadInput
from millrace.cli.lines import CHUNK, read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def from_file(path: Path, *, limit: int = 1 << 20) -> list[bytes]:
    with path.open("rb") as file:
        return [line async for line in read_lines(file.fileno(), limit=limit)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\n\ntwo", [b"one", b"", b"two"]),
        (b"dos\r\n\xff\x00\n", [b"dos\r", b"\xff\x00"]),
        (b"x" * (3 * CHUNK) + b"\ny" * CHUNK, [b"x" * (3 * CHUNK), *[b"y"] * CHUNK]),
    ],
)
async def test_a_file_is_taken_apart_at_its_newlines(
    tmp_path: Path, content: bytes, lines: list[bytes]
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert await from_file(tmp_path / "file") == lines


async def test_nothing_has_no_lines() -> None:
    assert await from_file(Path("/dev/null")) == []


async def test_a_line_is_there_as_soon_as_it_is_complete(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = read_lines(reading, limit=100)
    os.write(writing, b"one\ntw")
    assert await anext(lines) == b"one"
    second = asyncio.ensure_future(anext(lines))
    os.write(writing, b"o\n")
    assert await second == b"two"
    os.close(writing)
    assert [line async for line in lines] == []


async def test_waiting_can_be_cancelled(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    waiting = asyncio.ensure_future(anext(read_lines(reading, limit=100)))
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.close(writing)


async def test_a_line_that_is_too_long_is_named_after_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\ntwo\n" + b"x" * 2 * CHUNK)
    with (tmp_path / "file").open("rb") as file:
        lines = read_lines(file.fileno(), limit=CHUNK)
        assert [await anext(lines), await anext(lines)] == [b"one", b"two"]
        with pytest.raises(BadInput, match=f"line 3 has more than {CHUNK} bytes"):
            await anext(lines)
