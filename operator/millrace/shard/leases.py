"""Claiming shards through Leases, which the operator has made: one a shard, free or held by a pod.

A claim is a compare-and-swap on the Lease's version, and raises the epoch. Whether a holder is gone is
decided by the claimer's own clock: a Lease that did not change for its whole duration may be claimed. While
the API server is away nobody claims and nobody loses anything: what protects the data is the fence of the
state table.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from millrace.core.shardconfig import ShardConfig
from millrace.core.shardleases import BLOCKED_GROUPS, DEAD_LETTERED_GROUPS, EPOCH, HOLDER_UID

LOGGER = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0

Document = dict[str, Any]


class LeaseError(Exception):
    """The API server refused or could not be reached; `conflict` if somebody else wrote first."""

    def __init__(self, message: str, *, conflict: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict


class Leases:
    """The two requests that a pod may make."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/"

    async def read(self, name: str) -> Document:
        """One Lease."""
        return await self._request("GET", name)

    async def write(self, name: str, lease: Document) -> Document:
        """Replace it, if its version is still the one that was read."""
        return await self._request("PUT", name, lease)

    async def _request(self, method: str, name: str, body: Document | None = None) -> Document:
        path = self._path + quote(name)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            request = await self._client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await self._client.call_api(*request, _request_timeout=REQUEST_SECONDS)
                data: bytes = await response.read()
        except TimeoutError:
            raise LeaseError(f"{method} {path}: no answer within {REQUEST_SECONDS:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise LeaseError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if not 200 <= response.status <= 299:
            raise LeaseError(f"{method} {path}: {response.status}", conflict=response.status == 409)
        document: Document = json.loads(data)
        return document


@asynccontextmanager
async def connect(namespace: str) -> AsyncIterator[Leases]:
    """As the pod's ServiceAccount, or as KUBECONFIG says."""
    configuration = Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except kube_config.ConfigException:
        await kube_config.load_kube_config(client_configuration=configuration)
    client = ApiClient(configuration)
    try:
        yield Leases(client, namespace)
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Claim:
    """A shard that is ours as of this epoch."""

    shard: int
    epoch: int


class LeaseClaims:
    """Claims, keeps and releases shards for one pod."""

    def __init__(
        self,
        leases: Leases,
        config: ShardConfig,
        *,
        identity: str,
        uid: str = "",
        counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`counts` are the groups with lag in the retry and the dead-letter queue, told at each renewal."""
        self._leases = leases
        self._config = config
        self._identity = identity
        self._uid = uid
        self._counts = counts
        self._clock = clock
        self._seen: dict[int, tuple[str, float]] = {}
        """By shard, the version that was seen last, and since when."""

    async def claim(self) -> Claim:
        """Wait until a shard is ours. Errors of the API server only make it wait longer."""
        config = self._config
        told = ""
        while True:
            for shard in random.sample(range(config.shard_count), config.shard_count):
                try:
                    claim = await self._try(shard)
                except LeaseError as error:
                    if not error.conflict:
                        # That a Lease did not change while nobody could write it says nothing of its holder.
                        self._seen.pop(shard, None)
                    if not error.conflict and str(error) != told:
                        told = str(error)
                        LOGGER.warning("no shard can be claimed now: %s", error)
                else:
                    if claim is not None:
                        LOGGER.info("claimed shard %d, epoch %d", claim.shard, claim.epoch)
                        return claim
            await asyncio.sleep(config.timing.renew_seconds / 2 * random.uniform(0.5, 1.0))  # noqa: S311

    async def keep(self, claim: Claim) -> None:
        """Renew until somebody else holds the shard for certain."""
        told = False
        while True:
            await asyncio.sleep(self._config.timing.renew_seconds)
            try:
                lease = await self._leases.read(self._config.lease_name(claim.shard))
                if not self._is_ours(lease, claim):
                    LOGGER.warning("shard %d has another owner", claim.shard)
                    return
                blocked, dead = self._counts()
                _annotate(lease, {BLOCKED_GROUPS: str(blocked), DEAD_LETTERED_GROUPS: str(dead)})
                lease["spec"]["renewTime"] = _now()
                await self._leases.write(self._config.lease_name(claim.shard), lease)
                told = False
            except LeaseError as error:
                if not error.conflict and not told:
                    LOGGER.warning("the lease of shard %d was not renewed: %s", claim.shard, error)
                    told = True

    async def release(self, claim: Claim) -> None:
        """Let it go; if the API server is away it expires by itself."""
        try:
            lease = await self._leases.read(self._config.lease_name(claim.shard))
            if self._is_ours(lease, claim):
                lease["spec"]["holderIdentity"] = ""
                await self._leases.write(self._config.lease_name(claim.shard), lease)
        except LeaseError as error:
            LOGGER.warning("the lease of shard %d was not released: %s", claim.shard, error)

    async def _try(self, shard: int) -> Claim | None:
        name = self._config.lease_name(shard)
        lease = await self._leases.read(name)
        version, now = str(lease["metadata"]["resourceVersion"]), self._clock()
        seen = self._seen.get(shard)
        if seen is None or seen[0] != version:
            seen = self._seen[shard] = (version, now)
        spec = lease.get("spec") or {}
        held = bool(spec.get("holderIdentity"))
        expired = now - seen[1] >= float(spec.get("leaseDurationSeconds") or 0)
        # A pod has one shard at a time: what carries our name was held before this process began.
        own = (
            held and spec["holderIdentity"] == self._identity and _annotation(lease, HOLDER_UID) == self._uid
        )
        if held and not expired and not own:
            return None
        epoch = int(_annotation(lease, EPOCH) or "0") + 1
        _annotate(lease, {EPOCH: str(epoch), HOLDER_UID: self._uid})
        lease["spec"] = spec | {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._config.timing.lease_seconds)),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
        }
        await self._leases.write(name, lease)
        return Claim(shard, epoch)

    def _is_ours(self, lease: Document, claim: Claim) -> bool:
        holder = (lease.get("spec") or {}).get("holderIdentity")
        return holder == self._identity and _annotation(lease, EPOCH) == str(claim.epoch)


def _annotation(lease: Document, name: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(name, ""))


def _annotate(lease: Document, annotations: dict[str, str]) -> None:
    lease["metadata"]["annotations"] = (lease["metadata"].get("annotations") or {}) | annotations


def _now() -> str:
    # For people only: no decision reads it.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
