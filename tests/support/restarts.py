"""Restarting the real broker, where the environment says how."""

from __future__ import annotations

import os
import shlex
import subprocess

from millrace.pulsar.clients import blocking


def available() -> bool:
    return "PULSAR_RESTART_COMMAND" in os.environ


async def restart_pulsar() -> None:
    """Stop the broker and start it again on the same data; returns when it is healthy."""
    await blocking(subprocess.run, shlex.split(os.environ["PULSAR_RESTART_COMMAND"]), check=True)
