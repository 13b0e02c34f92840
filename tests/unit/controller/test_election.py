"""The election of a leader: every decision, and whole histories of replicas in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.controller.election import (
    Claim,
    Create,
    LeaseView,
    Renew,
    Sighting,
    Wait,
    decide,
    sight,
)
from tests.unit.controller.leasemodel import TIMING, Cluster, Link, at, running
from tests.unit.controller.virtualtime import simulate

HELD = LeaseView(holder="a", transitions=4, version="10", seconds=15.0)

# Decisions


def test_a_lease_that_does_not_exist_is_created() -> None:
    assert decide(None, None, "b", 0.0) == Create()


def test_a_lease_of_our_own_is_renewed_within_its_transition() -> None:
    assert decide(HELD, Sighting("10", 0.0), "a", 1000.0) == Renew("10", 4)


def test_a_lease_that_was_released_is_claimed_at_once() -> None:
    assert decide(LeaseView("", 4, "10", 1.0), None, "b", 0.0) == Claim("10", 5)


@pytest.mark.parametrize(
    ("sighting", "now"),
    [
        pytest.param(None, 1000.0, id="never seen before"),
        pytest.param(Sighting("10", 100.0), 114.9, id="seen for less than its time"),
        pytest.param(Sighting("9", 0.0), 1000.0, id="moved since it was seen"),
    ],
)
def test_a_lease_that_somebody_may_still_move_is_respected(sighting: Sighting | None, now: float) -> None:
    assert decide(HELD, sighting, "b", now) == Wait("a")


def test_a_lease_that_nobody_moved_for_its_whole_time_is_claimed() -> None:
    assert decide(HELD, Sighting("10", 100.0), "b", 115.0) == Claim("10", 5)


def test_a_version_counts_from_when_it_was_first_seen() -> None:
    first = sight(None, HELD, 100.0)
    assert first == Sighting("10", 100.0)
    assert sight(first, HELD, 110.0) == first
    assert sight(first, LeaseView("a", 4, "11", 15.0), 110.0) == Sighting("11", 110.0)


# Histories


def test_one_of_two_leads_and_keeps_the_lead() -> None:
    async def story() -> None:
        cluster = Cluster()
        async with running(cluster.replica("a"), cluster.replica("b")):
            await at(3600)
            assert [(lead.identity, lead.epoch, lead.since) for lead in cluster.leads] == [("a", 1, 0.0)]
            assert cluster.store.spec["holderIdentity"] == "a"
            assert cluster.store.spec["leaseDurationSeconds"] == 15
            assert cluster.store.spec["leaseTransitions"] == 1

    simulate(story())


def test_two_that_want_a_new_lease_at_the_same_moment_do_not_both_get_it() -> None:
    async def story() -> None:
        cluster = Cluster()
        a, b = cluster.replica("a"), cluster.replica("b")
        a.link.there = b.link.there = 0.5
        async with running(a, b):
            await at(60)
            assert len(cluster.leads) == 1

    simulate(story())


def test_after_a_crash_the_standby_leads_when_the_lease_has_run_out() -> None:
    async def story() -> None:
        cluster = Cluster()
        async with running(cluster.replica("a"), cluster.replica("b")) as (first, _):
            await at(100)
            first.cancel()
            last_sign = cluster.store.written_at[-1]
            await at(200)
            [_, lead] = cluster.leads
            assert (lead.identity, lead.epoch) == ("b", 2)
            assert TIMING.lease <= lead.since - last_sign <= TIMING.lease + 2 * TIMING.interval
            cluster.check()

    simulate(story())


def test_a_leader_that_stops_cleanly_hands_over_at_once() -> None:
    async def story() -> None:
        cluster = Cluster()
        a, b = cluster.replica("a"), cluster.replica("b")
        async with running(a, b) as (first, _):
            await at(100)
            first.cancel()
            await a.election.release()
            assert a.election.epoch is None
            await b.leading.wait()
            assert asyncio.get_running_loop().time() <= 100 + TIMING.interval
            assert b.election.epoch == 2
            cluster.check()

    simulate(story())


def test_a_process_that_comes_back_under_its_name_goes_on_where_it_was() -> None:
    async def story() -> None:
        cluster = Cluster()
        async with running(cluster.replica("a")) as (first,):
            await at(10)
            first.cancel()
            again = cluster.replica("a")
            assert await again.election.acquire() == 1
            assert asyncio.get_running_loop().time() == 10

    simulate(story())


SKEWS = [
    (0.0, 0.0, 1.0, 1.0),
    (1e6, 0.0, 1.0, 1.0),
    (0.0, 1e6, 1.0, 1.0),
    (5.0, 9e3, 0.9, 1.1),
    (7.0, 0.0, 1.1, 0.9),
]


@pytest.mark.parametrize("way", ["refused", "silent"])
@pytest.mark.parametrize(("offset_a", "offset_b", "rate_a", "rate_b"), SKEWS)
def test_a_leader_that_is_cut_off_stops_before_the_next_one_starts(
    way: str, offset_a: float, offset_b: float, rate_a: float, rate_b: float
) -> None:
    async def story() -> None:
        cluster = Cluster()
        a, b = cluster.replica("a", offset_a, rate_a), cluster.replica("b", offset_b, rate_b)
        async with running(a, b):
            await at(100)
            setattr(a.link, way, True)
            await a.stopped.wait()
            stopped = asyncio.get_running_loop().time()
            assert stopped - 100 <= (TIMING.deadline + 0.3) / rate_a
            await b.leading.wait()
            assert b.election.epoch == 2
            setattr(a.link, way, False)
            await at(1000)
            assert [lead.identity for lead in cluster.leads] == ["a", "b"], "who comes back stands by"
            cluster.check()

    simulate(story())


def test_a_clock_that_is_wrong_by_years_neither_steals_nor_blocks_the_lead() -> None:
    async def story() -> None:
        cluster = Cluster()
        async with running(cluster.replica("a"), cluster.replica("b", offset=1e9)) as (first, _):
            await at(1000)
            assert len(cluster.leads) == 1
            first.cancel()
            await at(1030)
            assert [lead.identity for lead in cluster.leads] == ["a", "b"]

    simulate(story())


def test_a_lead_counts_from_the_claim_and_not_from_its_answer() -> None:
    async def story() -> None:
        cluster = Cluster()
        a, b = cluster.replica("a"), cluster.replica("b")
        a.link.back = 9.0
        async with running(a):
            await at(9.5)
            async with running(b):
                await a.leading.wait()
                a.link.refused = True
                await b.leading.wait()
            cluster.check()
            assert cluster.leads[0].until - cluster.store.written_at[0] <= TIMING.deadline + 0.3

    simulate(story())


def test_a_single_renewal_that_fails_does_not_cost_the_lead() -> None:
    async def story() -> None:
        cluster = Cluster()
        a = cluster.replica("a")
        async with running(a, cluster.replica("b")):
            for beginning in range(50, 500, 50):
                await at(beginning)
                a.link.refused = True
                await at(beginning + 4)
                a.link.refused = False
            assert len(cluster.leads) == 1

    simulate(story())


def test_an_api_server_that_is_away_only_makes_the_claim_wait() -> None:
    async def story() -> None:
        cluster = Cluster()
        a = cluster.replica("a")
        a.link.refused = True
        async with running(a):
            await at(100)
            assert cluster.leads == []
            a.link.refused = False
            await a.leading.wait()
            assert asyncio.get_running_loop().time() <= 100 + TIMING.interval

    simulate(story())


def test_a_lease_that_somebody_gave_to_another_is_lost() -> None:
    async def story() -> None:
        cluster = Cluster()
        a = cluster.replica("a")
        async with running(a):
            await at(100)
            cluster.store.write({**cluster.store.spec, "holderIdentity": "c", "leaseTransitions": 2})
            await a.stopped.wait()
            assert asyncio.get_running_loop().time() <= 100 + TIMING.interval

    simulate(story())


def test_a_lease_that_somebody_deleted_is_lost() -> None:
    async def story() -> None:
        cluster = Cluster()
        a = cluster.replica("a")
        async with running(a):
            await at(100)
            cluster.store.lease = None
            await a.stopped.wait()
            assert asyncio.get_running_loop().time() <= 100 + TIMING.interval

    simulate(story())


def test_who_does_not_lead_releases_nothing() -> None:
    async def story() -> None:
        cluster = Cluster()
        a, b = cluster.replica("a"), cluster.replica("b")
        async with running(a, b):
            await at(10)
            held = cluster.store.lease
            await b.election.release()
            assert cluster.store.lease is held
            cluster.store.write({**cluster.store.spec, "holderIdentity": "c"})
            held = cluster.store.lease
            await a.election.release()
            assert cluster.store.lease is held, "it is somebody else's by now"

    simulate(story())


@pytest.mark.parametrize("way", ["refused", "silent"])
def test_a_release_that_does_not_get_through_holds_nobody_up(way: str) -> None:
    async def story() -> None:
        cluster = Cluster()
        a = cluster.replica("a")
        async with running(a):
            await at(10)
            setattr(a.link, way, True)
            await a.election.release()
            assert asyncio.get_running_loop().time() <= 10 + TIMING.interval
            assert a.election.epoch is None

    simulate(story())


def well(link: Link, *, refused: bool = False, silent: bool = False, slow: float = 0.0) -> None:
    link.refused, link.silent, link.there, link.back = refused, silent, slow, slow


TROUBLES = [
    well,
    partial(well, refused=True),
    partial(well, silent=True),
    partial(well, slow=0.4),
    partial(well, slow=2.5),
]
histories = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 2), st.sampled_from(TROUBLES)), max_size=12)


@settings(deadline=None, max_examples=200)
@given(histories, st.lists(st.floats(0.95, 1.05), min_size=3, max_size=3))
def test_whatever_the_network_does_there_is_never_more_than_one_leader(
    history: list[tuple[float, int, Callable[[Link], None]]], rates: list[float]
) -> None:
    async def story() -> None:
        cluster = Cluster()
        replicas = [cluster.replica(name, 1e5 * i, rates[i]) for i, name in enumerate("abc")]
        async with running(*replicas):
            for pause, number, trouble in history:
                await asyncio.sleep(pause)
                trouble(replicas[number].link)
            for replica in replicas:
                well(replica.link)
            await asyncio.sleep(60)
            cluster.check()
            assert cluster.leads[-1].until == float("inf"), "in the end somebody leads"

    simulate(story())
