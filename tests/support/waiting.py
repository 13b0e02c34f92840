"""Waiting for a condition, with a deadline and a helpful failure; what tests do in place of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def eventually(
    condition: Callable[[], Awaitable[bool] | bool],
    *,
    timeout: float = 15.0,  # noqa: ASYNC109 - the failure names the condition, which asyncio.timeout could not
    interval: float = 0.05,
    describe: Callable[[], str] | None = None,
) -> None:
    """Wait for a condition; fail with its name, and what is known, if it does not come true in time."""
    deadline = time.monotonic() + timeout
    while True:
        outcome = condition()
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        if outcome:
            return
        if time.monotonic() > deadline:
            name = getattr(condition, "__name__", condition)
            known = f": {describe()}" if describe else ""
            raise AssertionError(f"{name} was not true within {timeout:.0f} s{known}")
        await asyncio.sleep(interval)
