"""Which replica is the active one: a Lease, claimed and kept.

The decision is `decide`, a pure function; `Election` does what it says. Clocks of different machines are
never compared: a standby measures, on its own monotonic clock, how long it has seen no change of the Lease.
So a takeover needs one whole lease time of watching, and a skewed clock can neither steal nor block the
lead.

A replica that lost the lead may still believe for a moment that it has it. That is harmless by
construction: descriptors are published by compare and swap, status by resourceVersion, and a partition is
terminated only after its switch was announced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from millrace.controller.kube import KubeError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """`lease` is also the longest that the lead can be vacant after a crash; `deadline` < `lease` makes a
    leader that cannot renew stop before anyone else may start.
    """

    lease: float = 15.0
    deadline: float = 10.0
    interval: float = 3.0


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What matters of a Lease object. `version` changes with every write to it."""

    holder: str
    transitions: int
    version: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """The version of the Lease that was seen last, and when it was first seen (this process's monotonic
    clock).
    """

    version: str
    since: float


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease: make it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """It is free, or its holder has not moved it for its whole duration: take it, as this transition."""

    version: str
    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """It is ours: move it."""

    version: str
    transitions: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else has it."""

    holder: str


Decision = Create | Claim | Renew | Wait


def sight(previous: Sighting | None, lease: LeaseView, now: float) -> Sighting:
    """Remember when this version was first seen."""
    if previous is not None and previous.version == lease.version:
        return previous
    return Sighting(lease.version, now)


def decide(lease: LeaseView | None, sighting: Sighting | None, identity: str, now: float) -> Decision:
    """What to do about the Lease as it was just read."""
    if lease is None:
        return Create()
    if lease.holder == identity:
        return Renew(lease.version, lease.transitions)
    expired = (
        sighting is not None and sighting.version == lease.version and now - sighting.since >= lease.seconds
    )
    if not lease.holder or expired:
        return Claim(lease.version, lease.transitions + 1)
    return Wait(lease.holder)


class Leases(Protocol):
    """How Lease objects are read and written; a write on an old version fails with a conflict."""

    async def read_lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The object, or None if there is none."""

    async def create_lease(self, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Create it."""

    async def replace_lease(
        self, namespace: str, name: str, version: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        """Write it if its version is still the given one."""


class Election:
    """Claims the Lease, keeps it, and says when it is lost."""

    def __init__(
        self,
        leases: Leases,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing or Timing()
        self._clock = clock
        self._sighting: Sighting | None = None
        self._acquired_at = ""
        self._renewed = 0.0
        self.epoch: int | None = None
        """The Lease's transitions while this replica leads: it grows with every change of the leader."""

    async def acquire(self) -> int:
        """Wait until this replica leads; returns the epoch. Errors of the API server only make it wait
        longer.
        """
        said = ""
        while True:
            try:
                decision = await self._attempt()
            except (KubeError, TimeoutError) as error:
                logger.warning(
                    "the lease %s/%s cannot be claimed now: %s", self._namespace, self._name, error
                )
            else:
                if not isinstance(decision, Wait):
                    assert self.epoch is not None
                    logger.info("this replica leads as %s, epoch %d", self._identity, self.epoch)
                    return self.epoch
                if decision.holder != said:
                    said = decision.holder
                    logger.info("standing by: %s leads", said)
            await asyncio.sleep(self._timing.interval)

    async def keep(self) -> None:
        """Renew until the lead is lost, then return: the caller must stop at once."""
        while True:
            await asyncio.sleep(max(0.1, min(self._timing.interval, self._remaining())))
            try:
                # An answer that never comes must not outlast the deadline.
                async with asyncio.timeout(max(0.1, self._remaining())):
                    decision = await self._attempt()
            except (KubeError, TimeoutError) as error:
                why = str(error) or "time-out"
                logger.warning("the lease %s/%s was not renewed: %s", self._namespace, self._name, why)
            else:
                if not isinstance(decision, Renew):
                    logger.error(
                        "the lead is lost: the lease %s/%s changed hands", self._namespace, self._name
                    )
                    return
            if self._remaining() <= 0:
                logger.error(
                    "the lead is lost: the lease could not be renewed for %.0f s", self._timing.deadline
                )
                return

    def _remaining(self) -> float:
        return self._renewed + self._timing.deadline - self._clock()

    async def release(self) -> None:
        """Give the lead away on a clean stop, so that the standby need not wait for the lease to expire."""
        if self.epoch is None:
            return
        try:
            async with asyncio.timeout(self._timing.interval):
                lease = _view(await self._leases.read_lease(self._namespace, self._name))
                if lease is not None and lease.holder == self._identity:
                    spec = self._spec(lease.transitions) | {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._leases.replace_lease(self._namespace, self._name, lease.version, spec)
                    logger.info("the lead was released")
        except (KubeError, TimeoutError) as error:
            logger.warning("the lead was not released, and expires by itself: %s", error)
        self.epoch = None

    async def _attempt(self) -> Decision:
        lease = _view(await self._leases.read_lease(self._namespace, self._name))
        now = self._clock()
        if lease is not None:
            self._sighting = sight(self._sighting, lease, now)
        decision = decide(lease, self._sighting, self._identity, now)
        match decision:
            case Create():
                self._acquired_at = _now()
                await self._leases.create_lease(self._namespace, self._name, self._spec(1))
                self.epoch = 1
            case Claim(version, transitions):
                self._acquired_at = _now()
                await self._leases.replace_lease(
                    self._namespace, self._name, version, self._spec(transitions)
                )
                self.epoch = transitions
            case Renew(version, transitions):
                await self._leases.replace_lease(
                    self._namespace, self._name, version, self._spec(transitions)
                )
                self.epoch = transitions
            case Wait():
                return decision
        # Counted from before the write: the server may have done it at any time since.
        self._renewed = now
        return decision

    def _spec(self, transitions: int) -> dict[str, Any]:
        now = _now()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.lease),
            "acquireTime": self._acquired_at or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def _now() -> str:
    # For people only: no decision reads it.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _view(lease: dict[str, Any] | None) -> LeaseView | None:
    if lease is None:
        return None
    spec = lease.get("spec") or {}
    return LeaseView(
        holder=spec.get("holderIdentity") or "",
        transitions=spec.get("leaseTransitions") or 0,
        version=lease["metadata"]["resourceVersion"],
        seconds=float(spec.get("leaseDurationSeconds") or 0),
    )
