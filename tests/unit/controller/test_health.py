"""Whether a replica is alive and ready: the audit of the watch, the reasons, the answers to the probes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from millrace.controller.health import Health, Key, WatchAudit, serve

KIND, OTHER = "compositetopics", "pulsarconnections"
ORDERS: Key = (KIND, "shop", "orders")
PAYMENTS: Key = (KIND, "shop", "payments")
PULSAR: Key = (OTHER, "shop", "pulsar")


def audit(*delivered: tuple[Key, str]) -> WatchAudit:
    made = WatchAudit(grace=60.0)
    for key, version in delivered:
        made.delivered(key, version)
    return made


# The audit


def test_what_the_watch_has_delivered_is_not_missed() -> None:
    a = audit((ORDERS, "7"))
    for now in (0.0, 100.0, 1000.0):
        a.listed(KIND, {ORDERS: "7"}, now)
    assert a.missed() == []
    assert a.complete


@pytest.mark.parametrize(
    ("delivered", "listing"),
    [
        pytest.param([], {ORDERS: "7"}, id="an object that is new"),
        pytest.param([(ORDERS, "6")], {ORDERS: "7"}, id="a change"),
        pytest.param([(ORDERS, "7")], {}, id="a deletion"),
    ],
)
def test_what_the_watch_owes_is_missed_after_its_grace(
    delivered: list[tuple[Key, str]], listing: dict[Key, str]
) -> None:
    a = audit(*delivered)
    a.listed(KIND, listing, 100.0)
    assert not a.complete
    a.listed(KIND, listing, 160.0)
    assert a.missed() == []
    a.listed(KIND, listing, 161.0)
    assert a.missed() == [ORDERS]


@pytest.mark.parametrize("version", ["7", "8", None], ids=["the same", "a newer one", "the deletion"])
def test_a_watch_that_delivers_is_alive(version: str | None) -> None:
    a = audit((ORDERS, "6"))
    a.listed(KIND, {ORDERS: "7"}, 0.0)
    a.delivered(ORDERS, version)
    assert a.complete
    a.listed(KIND, {} if version is None else {ORDERS: version}, 100.0)
    assert a.missed() == []


def test_one_listing_alone_proves_nothing() -> None:
    a = audit((ORDERS, "8"))
    a.listed(KIND, {ORDERS: "7"}, 0.0)
    assert a.missed() == [], "the watch was faster than the listing"
    a.listed(KIND, {ORDERS: "8"}, 1000.0)
    assert a.missed() == []
    assert a.complete


def test_an_object_that_keeps_changing_does_not_hide_a_dead_watch() -> None:
    a = audit((ORDERS, "0"))
    for number in range(1, 9):
        a.listed(KIND, {ORDERS: str(number)}, 10.0 * number)
    assert a.missed() == [ORDERS]


def test_an_object_that_keeps_changing_under_a_living_watch_is_not_missed() -> None:
    a = audit()
    for number in range(100):
        a.listed(KIND, {ORDERS: str(number + 1)}, 10.0 * number)
        assert a.missed() == []
        a.delivered(ORDERS, str(number))


def test_an_object_that_came_and_went_unseen_is_forgotten() -> None:
    a = audit()
    a.listed(KIND, {ORDERS: "7"}, 0.0)
    a.listed(KIND, {}, 100.0)
    assert a.missed() == []


def test_kinds_are_listed_apart() -> None:
    a = audit((ORDERS, "1"), (PULSAR, "1"))
    a.listed(KIND, {ORDERS: "2"}, 0.0)
    a.listed(OTHER, {PULSAR: "1"}, 1000.0)
    assert a.missed() == [], "only a listing of its own kind tells how long a change is owed"
    a.listed(KIND, {ORDERS: "2"}, 1000.0)
    assert a.missed() == [ORDERS]


# The reasons


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def health(*, leading: bool = True, listed: bool = True, clock: Clock | None = None) -> Health:
    return Health(clock=clock or Clock(), leading=leading, listed=listed, loop_beat=0.0)


def dead_watch() -> WatchAudit:
    a = audit()
    for now in (0.0, 61.0):
        a.listed(KIND, {ORDERS: "1", PAYMENTS: "1"}, now)
    return a


def test_a_replica_with_nothing_against_it_is_alive_and_ready() -> None:
    assert health().not_alive() is None
    assert health().not_ready() is None


def test_a_leader_is_ready_once_it_has_seen_everything_and_alive_before() -> None:
    h = health(listed=False)
    assert h.not_alive() is None
    assert "first listing" in str(h.not_ready())


def test_a_standby_is_ready_without_a_listing() -> None:
    assert health(leading=False, listed=False).not_ready() is None


def test_a_loop_that_does_not_turn_is_dead() -> None:
    clock = Clock()
    h = health(clock=clock)
    clock.now = 60.0
    assert h.not_alive() is None
    clock.now = 75.0
    assert h.not_alive() == h.not_ready() == "the event loop has not turned for 75 s"
    h.loop_beat = 75.0
    assert h.not_alive() is None


def test_a_leader_whose_watch_is_dead_says_what_it_missed() -> None:
    h = health()
    h.audit = dead_watch()
    expected = "the watch has not shown a change of compositetopics shop/orders (2 in all)"
    assert h.not_alive() == h.not_ready() == expected


def test_a_standby_has_no_watch_that_could_be_dead() -> None:
    h = health(leading=False)
    h.audit = dead_watch()
    assert h.not_alive() is None


def test_a_failure_is_final() -> None:
    h = health()
    h.failure = "the watch ended"
    assert h.not_alive() == h.not_ready() == "the watch ended"


# The probes


@asynccontextmanager
async def served(h: Health) -> AsyncIterator[str]:
    runner = await serve(h, port=0)
    try:
        # Port 0 is another one for each family of addresses.
        [port] = [address[1] for address in runner.addresses if len(address) == 2]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_the_probes_answer_with_the_reason() -> None:
    h = health(listed=False)
    async with served(h) as address:
        assert await get(f"{address}/healthz") == (200, "ok\n")
        assert await get(f"{address}/readyz") == (503, "leading, and the first listing is not read yet\n")
        h.listed = True
        assert await get(f"{address}/readyz") == (200, "ok\n")
        h.failure = "the watch ended"
        assert await get(f"{address}/healthz") == (503, "the watch ended\n")


async def test_metrics_are_served_beside_the_probes() -> None:
    async with served(health()) as address:
        status, text = await get(f"{address}/metrics")
    assert status == 200
    assert "# TYPE millrace_" in text
