"""Claiming shards by compare-and-swap on Leases: one owner each, epochs that grow, expiry by one's own clock.

The store keeps what the API server keeps: a write on an old version is a conflict. Against a real one, with
real pods, `tests/e2e/test_subscriptions.py` claims, kills and takes over.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from millrace.core.shardconfig import DeliveryConfig, PulsarConfig, ShardConfig, Timing
from millrace.core.shardleases import BLOCKED_GROUPS, EPOCH
from millrace.shard.leases import Claim, LeaseClaims, LeaseError
from tests.support.waiting import eventually

CONFIG = ShardConfig(
    cluster_id="c",
    namespace="shop",
    name="orders",
    generation=0,
    shard_count=2,
    topic="shop/orders",
    subscription_name="s",
    descriptor_topic="d",
    retry_descriptor_topic="r",
    dead_letter_descriptor_topic="dl",
    state_topic_prefix="state-",
    lease_prefix="orders-0-",
    pulsar=PulsarConfig("pulsar://localhost:6650", "http://localhost:8080"),
    delivery=DeliveryConfig("http://localhost/hook"),
    timing=Timing(lease_seconds=10.0, renew_seconds=0.01),
)


class Store:
    """Leases as bare as the operator makes them."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {
            CONFIG.lease_name(shard): {"metadata": {"resourceVersion": "1"}} for shard in range(2)
        }
        self.away = False

    async def read(self, name: str) -> dict[str, Any]:
        if self.away:
            raise LeaseError("the API server is away")
        return copy.deepcopy(self.leases[name])

    async def write(self, name: str, lease: dict[str, Any]) -> dict[str, Any]:
        if self.away:
            raise LeaseError("the API server is away")
        there = self.leases[name]["metadata"]["resourceVersion"]
        if lease["metadata"]["resourceVersion"] != there:
            raise LeaseError("conflict", conflict=True)
        stored = copy.deepcopy(lease)
        stored["metadata"]["resourceVersion"] = str(int(there) + 1)
        self.leases[name] = stored
        return copy.deepcopy(stored)

    def holders(self) -> set[str]:
        return {lease.get("spec", {}).get("holderIdentity", "") for lease in self.leases.values()}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def claims(store: Store, identity: str, clock: Clock | None = None, **options: Any) -> LeaseClaims:
    return LeaseClaims(
        store, CONFIG, identity=identity, uid=f"uid-{identity}", clock=clock or Clock(), **options
    )  # type: ignore[arg-type]


async def claimed(of: LeaseClaims) -> Claim | None:
    """What can be claimed now; None if nothing can."""
    try:
        async with asyncio.timeout(0.2):
            return await of.claim()
    except TimeoutError:
        return None


async def test_each_shard_has_one_owner_and_a_third_pod_stands_by() -> None:
    store = Store()
    first, second = await claimed(claims(store, "a")), await claimed(claims(store, "b"))
    assert first is not None
    assert second is not None
    assert {first.shard, second.shard} == {0, 1}
    assert first.epoch == second.epoch == 1
    assert await claimed(claims(store, "c")) is None
    assert store.holders() == {"a", "b"}


async def test_pods_that_claim_at_once_do_not_share_a_shard() -> None:
    store = Store()
    found = await asyncio.gather(*(claimed(claims(store, name)) for name in "abcdef"))
    assert sorted(claim.shard for claim in found if claim is not None) == [0, 1]


async def test_a_shard_that_was_let_go_is_claimed_with_a_higher_epoch() -> None:
    store = Store()
    for name in "ab":
        await claimed(claims(store, name))
    old = claims(store, "a")
    shard = next(n for n in range(2) if store.leases[CONFIG.lease_name(n)]["spec"]["holderIdentity"] == "a")
    await old.release(Claim(shard, 1))
    assert await claimed(claims(store, "c")) == Claim(shard, 2)


async def test_a_lease_that_does_not_move_for_its_duration_may_be_claimed_and_not_sooner() -> None:
    store, clock = Store(), Clock()
    for name in "ab":
        await claimed(claims(store, name))
    waiting = claims(store, "c", clock)
    assert await claimed(waiting) is None
    clock.now += 9.9
    assert await claimed(waiting) is None
    clock.now += 0.2
    assert (await claimed(waiting) or Claim(-1, -1)).epoch == 2


async def test_an_api_server_that_was_away_makes_nobody_lose_a_shard() -> None:
    store, clock = Store(), Clock()
    for name in "ab":
        await claimed(claims(store, name))
    waiting = claims(store, "c", clock)
    assert await claimed(waiting) is None
    store.away = True
    clock.now += 60
    assert await claimed(waiting) is None
    store.away = False
    assert await claimed(waiting) is None, "the owners could not renew either"


async def test_keeping_renews_and_tells_and_ends_only_when_another_holds_the_shard() -> None:
    store = Store()
    own = claims(store, "a", counts=lambda: (7, 0))
    claim = await own.claim()
    name = CONFIG.lease_name(claim.shard)
    keeping = asyncio.ensure_future(own.keep(claim))
    await eventually(lambda: BLOCKED_GROUPS in store.leases[name]["metadata"]["annotations"])
    assert store.leases[name]["metadata"]["annotations"][BLOCKED_GROUPS] == "7"
    store.away = True
    await asyncio.wait((keeping,), timeout=0.1)
    assert not keeping.done(), "that it cannot be renewed is not the end"
    store.away = False
    # Without a pause between reading and writing: the owner cannot come in between.
    taken = copy.deepcopy(store.leases[name])
    taken["metadata"]["annotations"][EPOCH] = "2"
    taken["spec"]["holderIdentity"] = "b"
    await store.write(name, taken)
    await asyncio.wait_for(keeping, 5)


async def test_releasing_what_another_holds_changes_nothing() -> None:
    store = Store()
    claim = await claims(store, "a").claim()
    before = copy.deepcopy(store.leases)
    await claims(store, "b").release(Claim(claim.shard, claim.epoch))
    assert store.leases == before
