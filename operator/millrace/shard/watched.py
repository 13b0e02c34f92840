"""Values made of mounted files, made again when the files change.

Kubernetes replaces the files of a Secret while the pod runs. They are looked at once a second at most, since
a value is asked for with every request. If what they hold now cannot be used, the last value stays in use and
the log says why: half a rotation must not stop deliveries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from millrace.core.errors import DomainError

T = TypeVar("T")

LOGGER = logging.getLogger(__name__)

LOOK_SECONDS = 1.0

Seen = tuple[tuple[str, int, int, int], ...]


class Watched(Generic[T]):
    """A value, and the files that it was made of."""

    __slots__ = ("_files", "_load", "_look_at", "_seen", "_value", "_what")

    def __init__(self, what: str, files: Callable[[], Iterable[Path]], load: Callable[[], T]) -> None:
        """`load` raises OSError or DomainError if the value cannot be made; so does this, the first time."""
        self._what = what
        self._files = files
        self._load = load
        self._look_at = 0.0
        self._seen: Seen = self._look()
        self._value = load()

    def current(self, now: float) -> T:
        """The value; `now` in seconds of any clock, the same at each call."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._refresh()
        return self._value

    def _refresh(self) -> None:
        try:
            seen = self._look()
            if seen == self._seen:
                return
            # Before loading: files that change meanwhile differ from these, and are loaded again.
            self._seen = seen
            self._value = self._load()
        except OSError as error:
            self._seen = ()  # it may pass, so look again even if the files stay as they are
            LOGGER.warning("the last good %s stays in use: %s", self._what, error)
        except DomainError as error:
            LOGGER.warning("the last good %s stays in use: %s", self._what, error)
        else:
            LOGGER.info("the %s has changed and is in use", self._what)

    def _look(self) -> Seen:
        return tuple(
            (str(path), found.st_ino, found.st_mtime_ns, found.st_size)
            for path in self._files()
            for found in [path.stat()]
        )
