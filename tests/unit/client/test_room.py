"""Who is let in, in which order, and that nobody waits in vain."""

from __future__ import annotations

import asyncio

import pytest

from millrace.client.room import Room


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_room_is_bounded_in_messages_and_in_bytes() -> None:
    room = Room(max_messages=2, max_bytes=100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    assert not room.take(0)
    assert (room.messages, room.bytes) == (2, 100)


async def test_what_is_larger_than_all_the_room_is_let_in_alone() -> None:
    room = Room(max_messages=2, max_bytes=100)
    assert room.take(1000)
    assert not room.take(1)
    room.give_back(1000)
    assert room.take(1)


async def test_those_who_wait_are_let_in_in_their_order_and_nobody_passes_them() -> None:
    room = Room(max_messages=2, max_bytes=100)
    assert room.take(100)
    entered: list[int] = []

    async def enter(number: int, size: int) -> None:
        await room.wait(size)
        entered.append(number)

    waiting = [asyncio.ensure_future(enter(number, size)) for number, size in enumerate((90, 5, 5))]
    await settle()
    assert not room.take(0)
    room.give_back(100)
    room.let_in()
    assert not room.take(0)  # called in, but not there yet
    await settle()
    assert entered == [0, 1]
    room.give_back(90)
    room.let_in()
    await asyncio.gather(*waiting)
    assert entered == [0, 1, 2]


async def test_whoever_came_while_others_were_on_their_way_in_is_not_forgotten() -> None:
    room = Room(max_messages=5, max_bytes=100)
    assert room.take(100)
    first = asyncio.ensure_future(room.wait(1))
    await settle()
    room.give_back(100)
    room.let_in()
    second = asyncio.ensure_future(room.wait(1))
    await asyncio.wait_for(asyncio.gather(first, second), 1)
    assert room.messages == 2


@pytest.mark.parametrize("called", [False, True], ids=["before its turn", "at its turn"])
async def test_a_wait_that_is_cancelled_takes_no_room_and_lets_the_next_one_in(called: bool) -> None:
    room = Room(max_messages=1, max_bytes=100)
    assert room.take(1)
    leaving = asyncio.ensure_future(room.wait(7))
    staying = asyncio.ensure_future(room.wait(2))
    await settle()
    room.give_back(1)
    if called:
        room.let_in()
    leaving.cancel()
    room.let_in()
    await asyncio.wait_for(staying, 1)
    assert leaving.cancelled()
    assert (room.messages, room.bytes) == (1, 2)


async def test_closing_ends_every_wait_also_of_those_who_were_just_called_in() -> None:
    room = Room(max_messages=1, max_bytes=100)
    assert room.take(1)
    waiting = [asyncio.ensure_future(room.wait(1)) for _ in range(3)]
    await settle()
    room.give_back(1)
    room.let_in()
    room.close(ValueError("closed"))
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 3
    assert (room.messages, room.bytes) == (0, 0)
