"""Sandboxes for tests of the sandbox: each with a name of its own, and removed in any case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox import commands


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where no sandbox can be, there is nothing to test."""
    reason = ""
    if os.geteuid() != 0:
        reason = "a sandbox needs root"
    elif os.environ.get("MILLRACE_USE_CLUSTER", "0") not in {"", "0"}:
        reason = "MILLRACE_USE_CLUSTER is set"
    here = Path(__file__).parent
    for item in items:
        if reason and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def name() -> Iterator[str]:
    """A sandbox that is not there yet, and not there any more."""
    chosen = commands.fresh_name()
    yield chosen
    commands.succeed(chosen, "down")
