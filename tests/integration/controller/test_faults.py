"""Pulsar's admin API fails in every way it can, for a creation and for a switch: the condition says so
meanwhile, and once the fault is over the object becomes Ready with nobody's help.

The operator gives up a call after 25 s and a verdict about a vanished topic stands for a minute, so all
faults happen at the same time, each to an object of its own, and every test waits for its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from itertools import pairwise

import pytest
import pytest_asyncio

from millrace.api.reasons import Reason
from millrace.core.descriptor import Descriptor
from tests.integration.controller.adminproxy import (
    WRITES,
    AdminProxy,
    Answer,
    Behaviour,
    Delay,
    LoseAnswer,
    Passage,
    Reset,
)
from tests.integration.controller.places import CONNECTION, Manifest, Place
from tests.support import pulsar as support
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

RETRY_AFTER = 3
LONG_RETRY_AFTER = 26
"""Beyond the time that one call may take, so that every request is an attempt of its own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, and the reason that is given while it lasts."""

    behaviour: Behaviour
    creating: Reason = Reason.WAITING_FOR_PULSAR
    switching: Reason = Reason.WAITING_FOR_PULSAR
    methods: frozenset[str] | None = None
    lasts: bool = False
    """Until the object is Ready, and not only until its condition speaks of it."""


FAULTS = {
    "401": Fault(Answer(401), Reason.UNAUTHORIZED, Reason.UNAUTHORIZED),
    "403": Fault(Answer(403), Reason.FORBIDDEN, Reason.FORBIDDEN),
    # What does not exist when it is created is the namespace; what was published and is gone, the topic.
    "404": Fault(Answer(404), Reason.NAMESPACE_NOT_FOUND, Reason.TOPIC_VANISHED),
    "409": Fault(Answer(409, "Topic is being deleted"), methods=WRITES),
    "412": Fault(Answer(412), Reason.INVALID_SPEC, Reason.INVALID_SPEC),
    "429": Fault(Answer(429, headers={"Retry-After": str(RETRY_AFTER)})),
    "500": Fault(Answer(500)),
    "502": Fault(Answer(502)),
    "503": Fault(Answer(503)),
    "504": Fault(Answer(504)),
    "reset": Fault(Reset()),
    "answers-lost": Fault(LoseAnswer(), methods=WRITES),
    "too-slow": Fault(Delay(15)),
    "slow": Fault(Delay(1), Reason.CREATING, Reason.SEALING, lasts=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went with one object."""

    message: str
    """What the condition said during the fault."""
    status: Manifest
    descriptor: Descriptor
    hits: list[float]
    passages: list[Passage]

    @property
    def creations(self) -> list[str]:
        """The paths of topics that Pulsar created because of this object."""
        return [
            each.path
            for each in self.passages
            if each.method == "PUT"
            and each.status == 204
            and each.path.endswith(("-0/partitions", "-1/partitions", "-descriptor"))
        ]


Drills = dict[str, "asyncio.Task[Outcome]"]


async def creation(place: Place, proxy: AdminProxy, name: str, fault: Fault) -> Outcome:
    rule = proxy.rule(place.topics_of(name), fault.behaviour, methods=fault.methods)
    await place.create(name, 2)
    message = await place.says(name, fault.creating)
    if not fault.lasts:
        rule.end()
    return await outcome(place, proxy, name, message, rule.hits)


async def switch(place: Place, proxy: AdminProxy, name: str, fault: Fault) -> Outcome:
    await place.create(name, 2)
    await place.ready(name)
    rule = proxy.rule(place.topics_of(name), fault.behaviour, methods=fault.methods)
    await place.switch(name, 2, 4)
    message = await place.says(name, fault.switching)
    if not fault.lasts:
        rule.end()
    return await outcome(place, proxy, name, message, rule.hits)


async def outcome(place: Place, proxy: AdminProxy, name: str, message: str, hits: list[float]) -> Outcome:
    status = await place.ready(name)
    passages = proxy.requests(place.topics_of(name))
    return Outcome(message, status, await place.descriptor(name), list(hits), passages)


async def outage(place: Place, proxy: AdminProxy) -> tuple[str, str]:
    """Nobody listens at the admin URL for a while: what the connection and its topic say."""
    await proxy.close()
    await place.create("outage", 2, connectionRef={"name": "outage"})
    topic = await place.says("outage", Reason.WAITING_FOR_PULSAR)
    connection = await place.says("outage", Reason.WAITING_FOR_PULSAR, kind=CONNECTION)
    await proxy.open()
    await place.ready("outage")
    await place.ready("outage", kind=CONNECTION)
    return connection, topic


async def persistence(place: Place, proxy: AdminProxy) -> list[str]:
    """A fault that outlasts an attempt: the events up to the moment at which the next one has begun."""
    name = "persistence"
    slow_down = Answer(429, headers={"Retry-After": str(LONG_RETRY_AFTER)})
    rule = proxy.rule(place.topics_of(name), slow_down)
    await place.create(name, 2)
    await place.says(name, Reason.WAITING_FOR_PULSAR)
    await eventually(lambda: len(rule.hits) > 1, timeout=LONG_RETRY_AFTER + 30)
    events = await place.events(name)
    await place.says(name, Reason.WAITING_FOR_PULSAR, within=0)
    rule.end()
    await place.ready(name)
    return events


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shut() -> AsyncIterator[AdminProxy]:
    """A way to Pulsar that can be closed without closing that of the others."""
    async with AdminProxy(support.credentials()) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything(
    place: Place, proxy: AdminProxy, shut: AdminProxy
) -> AsyncIterator[dict[str, asyncio.Task[object]]]:
    operator = place.operator(MILLRACE_WORKERS="64")
    await operator.start()
    # Before the rest: news of a connection has every object of its namespace tried again at once.
    for name, way in (("pulsar", proxy), ("outage", shut)):
        await place.connect(way.url, name)
        await place.ready(name, kind=CONNECTION)
    pid = operator.pid
    work: dict[str, Awaitable[object]] = {
        "outage": outage(place, shut),
        "persistence": persistence(place, proxy),
    }
    for name, fault in FAULTS.items():
        work[f"creation-{name}"] = creation(place, proxy, f"creation-{name}", fault)
        work[f"switch-{name}"] = switch(place, proxy, f"switch-{name}", fault)
    tasks = {name: asyncio.ensure_future(each) for name, each in work.items()}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    metrics = await operator.metrics()
    assert operator.pid == pid
    assert metrics["millrace_reconciles_total{outcome=retry}"] > 0
    assert metrics["millrace_reconciles_total{outcome=error}"] == 0, operator.last_words()
    assert await operator.stop() == 0


@pytest.fixture
def drills(everything: Drills) -> Drills:
    return everything


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_creation_says_what_it_waits_for_and_is_done_when_the_fault_is_over(
    drills: Drills, place: Place, fault: str
) -> None:
    done = await drills[f"creation-{fault}"]
    assert done.hits, "the fault never happened"
    assert done.message
    assert done.status["producePointer"] == 0
    assert done.descriptor.generation == 1
    assert [topic.topic for topic in done.descriptor.storage_topics] == [
        place.storage_topic(f"creation-{fault}", 0)
    ]
    assert len(done.creations) == len(set(done.creations)) == 2, done.passages


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_switch_says_what_it_waits_for_and_is_done_when_the_fault_is_over(
    drills: Drills, place: Place, fault: str
) -> None:
    done = await drills[f"switch-{fault}"]
    assert done.hits, "the fault never happened"
    assert done.message
    assert (done.status["producePointer"], done.status.get("switchingTo")) == (1, None)
    assert [each["state"] for each in done.status["storageTopics"]] == ["Sealed", "Ready"]
    assert done.status["storageTopics"][0]["sealedPartitions"] == 2
    # The first, one storage topic more, the switch announced, the switch completed.
    assert done.descriptor.generation == 4
    assert [topic.layout.partitions for topic in done.descriptor.storage_topics] == [2, 4]
    assert len(done.creations) == len(set(done.creations)) == 3, done.passages


async def test_a_broker_that_asks_to_slow_down_is_not_asked_sooner(drills: Drills) -> None:
    hits = (await drills["creation-429"]).hits
    assert len(hits) > 1
    pauses = [later - sooner for sooner, later in pairwise(hits)]
    assert min(pauses) >= RETRY_AFTER, pauses


@pytest.mark.parametrize("status", ["401", "403", "404", "409", "412", "429", "500", "502", "503", "504"])
async def test_the_condition_has_the_answer_in_it(drills: Drills, status: str) -> None:
    assert f"answered {status}" in (await drills[f"creation-{status}"]).message


async def test_a_fault_that_lasts_is_told_once_and_not_with_every_attempt(
    everything: dict[str, asyncio.Task[list[str]]],
) -> None:
    assert await everything["persistence"] == [Reason.CREATING, Reason.WAITING_FOR_PULSAR]


async def test_nobody_at_the_admin_url_is_told_by_the_connection_and_by_the_topic(
    everything: dict[str, asyncio.Task[tuple[str, str]]],
) -> None:
    connection, topic = await everything["outage"]
    assert "cannot list the clusters: no connection to" in connection
    assert "no connection to" in topic
