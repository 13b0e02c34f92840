"""The command line as a process of its own, as the image runs it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import pulsar as support

OPERATOR = Path(__file__).parents[3] / "operator"
DEADLINE = 60.0


@dataclass(frozen=True)
class Ended:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


class Running:
    """A command that has been started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            line = await self.process.stdout.readline()
        if not line:
            raise AssertionError(f"it ended without another line: {await self.exited()}")
        return line.decode()

    def type(self, text: str) -> None:
        """Write to its standard input, which stays open."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    async def ended(self, stdin: bytes = b"") -> Ended:
        """Close its standard input, after writing this to it, and wait for its end."""
        async with asyncio.timeout(DEADLINE):
            out, err = await self.process.communicate(stdin)
        assert self.process.returncode is not None
        return Ended(self.process.returncode, out.decode(), err.decode())

    async def exited(self) -> Ended:
        """Wait for its end while its standard input stays open, as a terminal does."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE):
            out, err = await self.process.stdout.read(), await self.process.stderr.read()
            code = await self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        return Ended(code, out.decode(), err.decode())


async def start(*arguments: str, env: Mapping[str, str] | None = None) -> Running:
    """Start `millrace` as the image does."""
    return Running(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from millrace.cli import main; main()",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": str(OPERATOR),
                "PULSAR_NAMESPACE": support.NAMESPACE,
                **(env or {}),
            },
        )
    )


async def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ended:
    """Run `millrace` to its end."""
    return await (await start(*arguments, env=env)).ended(stdin)
