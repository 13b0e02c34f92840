"""The native client: one way to open it, and one way to wait for its blocking calls.

The client logs from threads of its own. Handing it a Python logger aborts the process at exit (one of its
threads asks for the interpreter while that shuts down), so it writes to a pipe instead, from which a thread
of ours feeds `logging`: warnings and errors only, so that logs show a broken connection but not every step of
a reconnect. Nothing is written to standard output or standard error: they belong to the program.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import pulsar

from millrace.pulsar.credentials import Credentials
from millrace.pulsar.errors import from_client

P = ParamSpec("P")
R = TypeVar("R")

LOGGER = logging.getLogger("millrace.pulsar.client")
_LINE = re.compile(r"[-\d]+ [:.\d]+ (?P<level>[A-Z]+) +\[\d+\] (?P<where>\S+) \| (?P<message>.*)")
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
_HARMLESS = "AlreadyClosed"
"""What the client calls an error when something is closed that the broker has closed: wanted, and done."""

# Not the event loop's own threads: while a broker is away these wait for it, and name resolution must not.
_THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="pulsar")


def connect(credentials: Credentials, *, operation_timeout: float = 30.0) -> pulsar.Client:
    """A client. Nothing is contacted yet; `close` it when done (which blocks: see `blocking`)."""
    tls = credentials.tls
    try:
        return pulsar.Client(
            credentials.service_url,
            authentication=credentials.client_authentication(),
            operation_timeout_seconds=max(1, round(operation_timeout)),
            tls_trust_certs_file_path=None if tls.ca_file is None else str(tls.ca_file),
            tls_allow_insecure_connection=tls.allow_insecure,
            tls_validate_hostname=tls.validate_hostname and not tls.allow_insecure,
            stats_interval_in_seconds=0,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, _log_pipe()),
        )
    except Exception as error:
        raise from_client(error, f"open a client for {credentials.service_url}") from error


async def blocking(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking call in a thread. If we are cancelled meanwhile, the call still runs to its end."""
    work = functools.partial(call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def blocking_whole(make: Callable[[], R], undo: Callable[[R], object]) -> R:
    """The same for a call that opens something: if we are cancelled meanwhile, nothing stays open."""
    making = asyncio.ensure_future(blocking(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        # What is being opened cannot be called back: see it through, and end it.
        await asyncio.wait((making,))
        if not making.cancelled() and making.exception() is None:
            await blocking(undo, making.result())
        raise


@functools.cache
def _log_pipe() -> str:
    """The path of a pipe whose lines end up in `logging`: one for all clients of the process."""
    reading, writing = os.pipe()
    threading.Thread(target=_feed_log, args=(reading,), name="pulsar-log", daemon=True).start()
    return f"/dev/fd/{writing}"


def _feed_log(reading: int) -> None:
    with open(reading, errors="replace") as lines:
        for line in lines:
            level, message = _told(line.rstrip())
            LOGGER.log(level, "%s", message)


def _told(line: str) -> tuple[int, str]:
    """How loud, and what, to say for a line of the client's."""
    found = _LINE.fullmatch(line)
    if found is None:
        return logging.WARNING, line
    level = logging.DEBUG if _HARMLESS in found["message"] else _LEVELS.get(found["level"], logging.DEBUG)
    return level, f"{found['message']} ({found['where']})"
