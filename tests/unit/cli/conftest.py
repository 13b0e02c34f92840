"""The command line sets levels of loggers for its process; here they are set back after each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LOGGERS = ("millrace", "millrace.pulsar.client")


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
