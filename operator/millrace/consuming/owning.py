"""Claim a shard, serve it for a term, and begin again: the life of a process that consumes.

How a shard is claimed is passed in (`Claims`). A claim only says who should own a shard; what makes a second
owner harmless is the fence of the state table (see `terms`). So a claim that cannot be renewed is not the end
of a term: only one that somebody else holds is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from millrace.consuming.settings import Deliverer, Settings
from millrace.consuming.terms import Clients, Over, Term
from millrace.core.errors import DomainError
from millrace.pulsar.errors import Fenced, PulsarError

LOGGER = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class Claimed(Protocol):
    """A shard that was claimed."""

    @property
    def shard(self) -> int:
        """Which one."""

    @property
    def epoch(self) -> int:
        """Higher than that of any owner before."""


class Claims(Protocol):
    """Where shards are claimed."""

    async def claim(self) -> Any:
        """Wait until a shard is ours."""

    async def keep(self, claim: Any) -> None:
        """Renew until somebody else holds the shard for certain; then return."""

    async def release(self, claim: Any) -> None:
        """Let it go, so that nobody has to wait. Must not raise."""


class Consuming:
    """Serves one shard after the other, one at a time."""

    def __init__(
        self,
        claims: Claims,
        clients: Clients,
        settings_of: Callable[[int], Settings],
        deliverer_of: Callable[[int, int], Deliverer],
    ) -> None:
        """`settings_of` gets the shard, `deliverer_of` shard and epoch."""
        self.term: Term | None = None
        """The term that this process serves now; None while it stands by."""
        self.shard: int | None = None
        self._claims = claims
        self._clients = clients
        self._settings_of = settings_of
        self._deliverer_of = deliverer_of

    def blocked(self) -> tuple[int, int]:
        """How many groups have lag in the retry queue, and in the dead-letter queue."""
        flow = None if self.term is None else self.term.flow
        return (0, 0) if flow is None else flow.blocked()

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not stopping.is_set():
            claim = await _unless(stopping, self._claims.claim())
            if claim is None:
                return
            began = loop.time()
            try:
                await self._serve(claim, stopping)
            except (Over, PulsarError, DomainError, OSError) as error:
                told = "another owner has come" if isinstance(error, Fenced) else str(error)
                LOGGER.warning("the term %d of shard %d is over: %s", claim.epoch, claim.shard, told)
            finally:
                self.term = self.shard = None
                # Also after a failure: another process may be luckier, and our next term needs a new epoch.
                await self._claims.release(claim)
            if loop.time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await _unless(stopping, asyncio.sleep(pause * random.uniform(0.5, 1.0)))  # noqa: S311 - jitter
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _serve(self, claim: Claimed, stopping: asyncio.Event) -> None:
        settings = self._settings_of(claim.shard)
        deliverer = self._deliverer_of(claim.shard, claim.epoch)
        ending = asyncio.Event()
        term = Term(self._clients, settings, claim.epoch, deliverer)
        self.term, self.shard = term, claim.shard

        async def end_with(work: Awaitable[Any]) -> None:
            await work
            ending.set()

        watching = [
            asyncio.ensure_future(end_with(self._claims.keep(claim))),
            asyncio.ensure_future(end_with(stopping.wait())),
        ]
        try:
            await term.run(ending)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
            await deliverer.close(0.0)
        for task in watching:
            if not task.cancelled():
                task.result()


async def _unless(stopping: asyncio.Event, work: Awaitable[Any]) -> Any:
    """The work's result; None if the order to stop comes first."""
    working = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stop):
            task.cancel()
        await asyncio.wait({working, stop})
