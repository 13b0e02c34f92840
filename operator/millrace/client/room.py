"""Back-pressure: how much may be under way at once, and the line of those who wait for room.

Room is taken for a waiting send when its turn comes, and given back if its sender has stopped waiting in that
very moment: so a wait that was cancelled has sent nothing, and nobody behind it waits in vain. Whoever comes
while there is a line joins it: the order of the calls is the order in which they are let in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Place:
    """In the line."""

    size: int
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    called: bool = False
    """Its turn has come, and the room is its own; it has not been told yet."""


class Room:
    """For so many messages, with so many bytes in all. One event loop; `let_in` after giving room back."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.messages = 0
        self.bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._line: deque[_Place] = deque()
        self._closed: Exception | None = None

    def take(self, size: int) -> bool:
        """Take room for a message, if there is some and nobody waits for it."""
        if self._line or not self._fits(size):
            return False
        self._occupy(size)
        return True

    async def wait(self, size: int) -> None:
        """Wait for room and take it. Use it before awaiting anything else: that keeps the order."""
        place = _Place(size)
        self._line.append(place)
        self.let_in()  # there may be room, and a line only of those who are on their way in
        try:
            await place.turn
            if self._closed is not None:
                raise self._closed
        except BaseException:
            self._line.remove(place)
            if place.called:
                self.give_back(size)
            self.let_in()
            raise
        self._line.remove(place)

    def give_back(self, size: int) -> None:
        """A message is settled, or was not sent after all."""
        self.messages -= 1
        self.bytes -= size

    def let_in(self) -> None:
        """Tell those whose turn has come."""
        for place in self._line:
            if place.turn.done():
                continue  # on its way in, or gone
            if not self._fits(place.size):
                return
            self._occupy(place.size)
            place.called = True
            place.turn.set_result(None)

    def close(self, error: Exception) -> None:
        """Nobody is let in any more: those who wait get this error."""
        self._closed = error
        for place in self._line:
            if not place.turn.done():
                place.turn.set_exception(error)

    def _fits(self, size: int) -> bool:
        if self.messages == 0:
            return True  # also for one that is larger than all the room there is
        return self.messages < self._max_messages and self.bytes + size <= self._max_bytes

    def _occupy(self, size: int) -> None:
        self.messages += 1
        self.bytes += size
