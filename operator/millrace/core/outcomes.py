"""What an answer of the endpoint means: delivered, to be tried again, or never to be tried again.

There is no fourth kind. Whatever is not clearly a success and not declared hopeless by the subscription is
worth another attempt: a message is given up because somebody said so, never because an answer was strange.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus

MAX_REASON = 512
"""Characters of a reason; it travels with a parked message and is shown in lists."""

MAX_RETRY_AFTER = 3600.0
"""Seconds. An endpoint that asks for more is tried again after an hour: the wish may be a mistake, and
deliveries would stand still until somebody looks."""

THROTTLING = frozenset({429, 503})
"""The statuses by which an endpoint says that it gets too much."""


@dataclass(frozen=True, slots=True)
class Success:
    """Delivered."""


@dataclass(frozen=True, slots=True)
class Retryable:
    """Not delivered, or not known to be; the same request may succeed later."""

    reason: str
    retry_after: float | None = None
    """Seconds that the endpoint asked us to wait."""
    throttled: bool = False
    """Whether the endpoint said that it gets too much, rather than that something is wrong."""


@dataclass(frozen=True, slots=True)
class HardFailure:
    """Not delivered, and no later attempt would help."""

    reason: str


Outcome = Success | Retryable | HardFailure

SUCCESS = Success()


def classify(
    status: int, retry_after: float | None = None, hard_codes: Collection[int] = (), said: bytes = b""
) -> Outcome:
    """The outcome of an answer; `said` is the beginning of its body."""
    if 200 <= status <= 299:
        return SUCCESS
    reason = _reason(status, said)
    if status in hard_codes:
        return HardFailure(reason)
    return Retryable(reason, retry_after, throttled=status in THROTTLING or retry_after is not None)


def unanswered(error: str) -> Retryable:
    """The outcome when there was no answer: no connection, a time-out, or something that is no HTTP."""
    return Retryable(_shortened(_printable(error)) or "there was no answer")


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds to wait, from a Retry-After header (a number or a date); None for what is neither.

    `now` is the wall clock, in seconds since 1970. The wait is never negative, nor beyond MAX_RETRY_AFTER.
    """
    text = value.strip()
    if re.fullmatch(r"[0-9]+", text, re.ASCII):
        # A number too long to convert is too long to wait for.
        return min(float(text), MAX_RETRY_AFTER) if len(text) < 16 else MAX_RETRY_AFTER
    try:
        when = parsedate_to_datetime(text)
        # HTTP dates are in GMT, whether or not they say so in a way that the parser knows.
        moment = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    return min(max(0.0, moment - now), MAX_RETRY_AFTER)


def _reason(status: int, said: bytes) -> str:
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    text = _printable(said.decode("utf-8", "replace"))
    return _shortened(f"the endpoint answered {status}{phrase}" + (f": {text}" if text else ""))


def _printable(text: str) -> str:
    """On one line, without control characters or lone surrogates: it is stored, logged and shown."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"
