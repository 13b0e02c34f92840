"""The operator as a process of its own, as the image runs it: started, killed, stopped, asked how it is."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import eventually

SOURCES = Path(__file__).parents[3] / "operator"
STOPS_WITHIN = 30.0


class Operator:
    """One replica. Started again it is the same one: the container is new, the pod is not."""

    def __init__(self, identity: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.identity = identity
        self._log = directory / f"{identity}.log"
        self._port = _free_port()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCES),
            "MILLRACE_IDENTITY": identity,
            "MILLRACE_METRICS_PORT": str(self._port),
            "MILLRACE_LOG_FORMAT": "text",
            "MILLRACE_DEFAULT_CONNECTION": str(directory / "there-is-none.yaml"),
            **settings,
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if it was killed by a signal."""
        return self._running().returncode

    def last_words(self) -> str:
        """The end of its log, for a failure that is to be understood."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join([f"-- the end of the log of {self.identity}:", *lines[-25:]])

    async def start(self) -> None:
        """Start it, and do not wait for anything."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millrace.controller"), stderr=log, stdout=log, env=self._environment
            )

    async def leads(self, *, within: float = 60.0) -> None:
        """Wait until it leads and has read every object."""

        async def leading() -> bool:
            assert self.exit_code is None, f"it ended with {self.exit_code}\n{self.last_words()}"
            metrics = await self.metrics()
            return metrics.get("millrace_leading") == 1 and (await self.probe("/readyz"))[0] == 200

        await eventually(leading, timeout=within, interval=0.1, describe=self.last_words)

    async def stands_by(self) -> None:
        """Wait until it is up and sees that another one leads."""
        await eventually(
            lambda: "standing by" in self._log.read_text(errors="replace"),
            timeout=60,
            describe=self.last_words,
        )

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    async def kill(self) -> None:
        """kill -9, and see it gone; if it was never there, too."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """As Kubernetes does it; the exit code."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self, *, within: float = STOPS_WITHIN) -> int:
        """Wait for its end; the exit code."""
        try:
            async with asyncio.timeout(within):
                return await self._running().wait()
        except TimeoutError:
            raise AssertionError(f"it still runs after {within:.0f} s\n{self.last_words()}") from None

    async def probe(self, path: str) -> tuple[int, str]:
        """Status and text of a probe; status 0 if nobody answers."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.get(f"http://127.0.0.1:{self._port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def metrics(self) -> Counter[str]:
        """Every sample, summed over its labels, and also by each of its labels: `name{label=value}`."""
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families((await self.probe("/metrics"))[1]):
            for sample in family.samples:
                found[sample.name] += sample.value  # type: ignore[assignment]
                for label, value in sample.labels.items():
                    found[f"{sample.name}{{{label}={value}}}"] += sample.value  # type: ignore[assignment]
        return found

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was never started"
        return self._process


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])
