"""An event loop that does not wait: when nothing is left to do now, its clock jumps to what comes next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now += max(timeout, 0.0)
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def simulate(story: Coroutine[Any, Any, T], longest: float = 10_000.0) -> T:
    """Run a story from time 0 on, as fast as it can be computed."""

    async def bounded() -> T:
        async with asyncio.timeout(longest):
            return await story

    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(bounded())
