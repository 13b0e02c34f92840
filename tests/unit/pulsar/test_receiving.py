"""Messages from a thread that blocks, in batches and in order, without a native client."""

from __future__ import annotations

import asyncio
import queue
from typing import Any

import pulsar
import pytest

from millrace.pulsar import receiving
from millrace.pulsar.receiving import Receiving


class Partition:
    """What a native consumer does: blocks for a while, then says that nothing came."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()

    def receive(self, milliseconds: int) -> Any:
        try:
            found = (
                self.messages.get(timeout=milliseconds / 1000) if milliseconds else self.messages.get_nowait()
            )
        except queue.Empty:
            raise pulsar.Timeout from None
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def partition() -> Partition:
    return Partition()


async def asked(of: Receiving) -> list[Any]:
    future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def came(messages: list[Any], error: pulsar.PulsarException | None) -> None:
        if error is None:
            future.set_result(messages)
        else:
            future.set_exception(error)

    of.ask(came)
    return await asyncio.wait_for(future, 10)


async def test_what_is_there_is_taken_along_up_to_the_limit(partition: Partition) -> None:
    for number in range(5):
        partition.messages.put(number)
    of = Receiving(partition.receive, 3)
    assert await asked(of) == [0, 1, 2]
    assert await asked(of) == [3, 4]
    of.close()


async def test_a_message_that_comes_late_is_waited_for(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "POLL_MILLIS", 5)
    of = Receiving(partition.receive, 3)
    waiting = asyncio.ensure_future(asked(of))
    done, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not done
    partition.messages.put("late")
    assert await waiting == ["late"]
    of.close()


async def test_what_came_before_a_failure_is_handed_over_and_the_failure_comes_next(
    partition: Partition,
) -> None:
    partition.messages.put("last")
    partition.messages.put(pulsar.AlreadyClosed())
    partition.messages.put(pulsar.AlreadyClosed())
    of = Receiving(partition.receive, 3)
    assert await asked(of) == ["last"]
    with pytest.raises(pulsar.AlreadyClosed):
        await asked(of)
    of.close()


async def test_several_asks_are_answered_in_order(partition: Partition) -> None:
    for number in range(6):
        partition.messages.put(number)
    of = Receiving(partition.receive, 2)
    assert await asyncio.gather(*(asked(of) for _ in range(3))) == [[0, 1], [2, 3], [4, 5]]
    of.close()


async def test_after_a_close_nobody_is_told(partition: Partition) -> None:
    of = Receiving(partition.receive, 2)
    told: list[Any] = []
    of.ask(lambda messages, _: told.append(messages))
    of.close()
    partition.messages.put("too late")
    thread = of._thread
    assert thread is not None
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert told == []
