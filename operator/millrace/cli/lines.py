"""Lines of standard input, as they are typed or piped, without a thread that could outlive a Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from millrace.cli.failures import BadInput

STDIN = 0
CHUNK = 64 * 1024


async def read_lines(source: int, *, limit: int) -> AsyncIterator[bytes]:
    """Each line without its newline; what follows the last newline is a line too. Raises for a longer one."""
    number, begun = 1, bytearray()
    while chunk := await _read(source):
        begun += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(begun).split(b"\n")
            begun = bytearray(rest)
            for line in whole:
                yield line
            number += len(whole)
        if len(begun) > limit:
            raise BadInput(f"line {number} has more than {limit} bytes; send less, or a reference to it")
    if begun:
        yield bytes(begun)


async def _read(source: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(source, readable.set)
    except PermissionError:
        return os.read(source, CHUNK)  # a file, or nothing: it never makes us wait
    try:
        await readable.wait()
    finally:
        loop.remove_reader(source)
    return os.read(source, CHUNK)
