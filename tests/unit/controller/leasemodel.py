"""Replicas that want to lead, a Lease in memory, and links between them that break, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from millrace.controller.election import Election, Timing
from millrace.controller.kube import REQUEST_SECONDS, KubeError

TIMING = Timing(lease=15.0, deadline=10.0, interval=3.0)


class Store:
    """Leases as the API server keeps them: every write makes a new version, and needs the present one."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.written_at: list[float] = []
        self._version = 0

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def write(self, spec: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.written_at.append(asyncio.get_running_loop().time())
        self.lease = {"metadata": {"resourceVersion": str(self._version)}, "spec": spec}
        return self.lease

    async def read_lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.lease

    async def create_lease(self, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise KubeError("it exists", 409)
        return self.write(spec)

    async def replace_lease(
        self, namespace: str, name: str, version: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        if self.lease is None or self.lease["metadata"]["resourceVersion"] != version:
            raise KubeError("it was changed", 409)
        return self.write(spec)


@dataclass
class Link:
    """One replica's way to the store, which can break in every way that a network does."""

    store: Store
    refused: bool = False
    """Every request fails at once."""
    silent: bool = False
    """Requests arrive, and their answers do not."""
    there: float = 0.0
    back: float = 0.0

    async def _through(self, request: Callable[[], Awaitable[Any]]) -> Any:
        if self.refused:
            raise KubeError("connection refused")
        await asyncio.sleep(self.there)
        answer = await request()
        if self.silent:
            await asyncio.sleep(REQUEST_SECONDS)
            raise KubeError("no answer")
        await asyncio.sleep(self.back)
        return answer

    async def read_lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        answer: dict[str, Any] | None = await self._through(lambda: self.store.read_lease(namespace, name))
        return answer

    async def create_lease(self, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await self._through(lambda: self.store.create_lease(namespace, name, spec))
        return answer

    async def replace_lease(
        self, namespace: str, name: str, version: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await self._through(
            lambda: self.store.replace_lease(namespace, name, version, spec)
        )
        return answer


@dataclass
class Lead:
    """One time of leading, on the clock that nobody in the story can see."""

    identity: str
    epoch: int
    since: float
    until: float = float("inf")


@dataclass
class Replica:
    """A process that leads whenever it can; `offset` and `rate` make its clock wrong."""

    identity: str
    link: Link
    leads: list[Lead]
    offset: float = 0.0
    rate: float = 1.0
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self.election = Election(
            self.link,
            "millrace-system",
            "millrace",
            self.identity,
            timing=TIMING,
            clock=lambda: self.offset + self.rate * loop.time(),
        )

    async def run(self) -> None:
        while True:
            lead = Lead(self.identity, await self.election.acquire(), self._time())
            self.leads.append(lead)
            self.leading.set()
            self.stopped.clear()
            try:
                await self.election.keep()
            finally:
                lead.until = self._time()
                self.leading.clear()
                self.stopped.set()


@dataclass
class Cluster:
    """The store, and every time of leading in the order in which they began."""

    store: Store = field(default_factory=Store)
    leads: list[Lead] = field(default_factory=list)

    def replica(self, identity: str, offset: float = 0.0, rate: float = 1.0) -> Replica:
        return Replica(identity, Link(self.store), self.leads, offset, rate)

    def check(self) -> None:
        """Nobody leads before the one before has stopped, and every change of the leader has its number."""
        for before, after in zip(self.leads, self.leads[1:], strict=False):
            assert before.until <= after.since, f"two leaders at once: {before}, {after}"
            assert before.epoch < after.epoch or (
                before.epoch == after.epoch and before.identity == after.identity
            )


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(replica.run()) for replica in replicas]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def at(moment: float) -> None:
    """Let the story run on to this time."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(moment - loop.time())
