"""kill -9 at any request of a creation and a switch: the operator that comes after it finishes the work as if
nothing had happened.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from millrace.core.positions import EntryId
from tests.integration.controller.adminproxy import AdminProxy, Interrupt, Passage
from tests.integration.controller.operators import Operator
from tests.integration.controller.places import Manifest, Place

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_REQUESTS = 30
"""Above what an undisturbed creation and switch needs; the first test fails when it no longer is."""
SPREAD = range(1, 27, 5)
EVERY_POINT = [
    pytest.param(
        (number, after),
        id=f"{'after' if after else 'before'}-{number}",
        # In the shorter tier a handful, with both ways in turn.
        marks=() if number in SPREAD and after == bool(SPREAD.index(number) % 2) else pytest.mark.full,
    )
    for number in range(1, MOST_REQUESTS + 1)
    for after in (False, True)
]
SUBSCRIPTION = "audit"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is there when it is Ready, with the object's own name taken out: comparable between objects."""

    status: Manifest
    generation: int
    storage_topics: list[tuple[str, int]]
    topics: list[str]
    sealed: tuple[EntryId, ...]
    written: dict[int, list[EntryId]]
    passages: list[Passage]

    @property
    def shape(self) -> tuple[object, ...]:
        pointers = self.status["producePointer"], self.status.get("switchingTo")
        states = [(each["state"], each["sealedPartitions"]) for each in self.status["storageTopics"]]
        return pointers, states, self.generation, self.storage_topics, self.topics


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(place: Place, proxy: AdminProxy) -> AsyncIterator[Operator]:
    operator = place.operator()
    await operator.start()
    await place.connect(proxy.url)
    await operator.leads()
    yield operator
    assert (await operator.metrics())["millrace_reconciles_total{outcome=error}"] == 0, operator.last_words()
    assert await operator.stop() == 0


async def create_and_switch(place: Place, proxy: AdminProxy, name: str) -> Outcome:
    await place.create(name, 2)
    await place.ready(name)
    first, second = place.storage_topic(name, 0), place.storage_topic(name, 1)
    await place.admin.create_subscription(first, SUBSCRIPTION)
    written = await place.write(first, 2, each=10)
    await place.switch(name, 2, 4)
    status = await place.ready(name)
    assert SUBSCRIPTION in await place.admin.subscriptions(second)
    descriptor = await place.descriptor(name)
    ours = sorted(topic for topic in await place.topics() if topic.startswith(f"{place.namespace}.{name}-"))
    outcome = Outcome(
        status=status,
        generation=descriptor.generation,
        storage_topics=[
            (topic.topic.replace(name, ""), topic.layout.partitions) for topic in descriptor.storage_topics
        ],
        topics=[topic.replace(name, "") for topic in ours],
        sealed=descriptor.storage_topics[0].sealed or (),
        written=written,
        passages=proxy.requests(place.topics_of(name)),
    )
    await place.delete(name)
    await place.remove_topics(ours)
    return outcome


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(place: Place, proxy: AdminProxy, operator: Operator) -> Outcome:
    return await create_and_switch(place, proxy, "undisturbed")


async def test_every_request_of_an_undisturbed_run_is_one_to_be_killed_at(undisturbed: Outcome) -> None:
    assert undisturbed.status["producePointer"] == 1
    assert [each["state"] for each in undisturbed.status["storageTopics"]] == ["Sealed", "Ready"]
    assert undisturbed.generation == 4
    assert max(SPREAD) <= len(undisturbed.passages) <= MOST_REQUESTS


@pytest.mark.parametrize("point", EVERY_POINT)
async def test_an_operator_that_is_killed_at_a_request_leaves_nothing_that_the_next_one_cannot_finish(
    place: Place, proxy: AdminProxy, operator: Operator, undisturbed: Outcome, point: tuple[int, bool]
) -> None:
    number, after = point
    if number > len(undisturbed.passages):
        pytest.skip(f"an undisturbed run makes {len(undisturbed.passages)} requests")
    killed = operator.pid

    async def kill_and_start_again() -> None:
        await operator.kill()
        await operator.start()

    name = f"killed-{secrets.token_hex(3)}"
    kill = Interrupt(kill_and_start_again, after)
    rule = proxy.rule(place.topics_of(name), kill, skip=number - 1, times=1)
    outcome = await create_and_switch(place, proxy, name)
    assert rule.hits, "it was never killed"
    assert operator.pid != killed
    assert outcome.shape == undisturbed.shape
    for partition, entries in outcome.written.items():
        assert max(entries) <= outcome.sealed[partition], "a message lies behind the sealed end"
    created = Counter(each.path for each in outcome.passages if _creates(each) and each.status == 204)
    assert sorted(created.values()) == [1, 1, 1], created


def _creates(passage: Passage) -> bool:
    return passage.method == "PUT" and passage.path.endswith(("/partitions", "-descriptor"))
