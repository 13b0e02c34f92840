from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading

import pytest

from millrace.pulsar.clients import _told, blocking, connect
from millrace.pulsar.credentials import Credentials
from tests.support.waiting import eventually

AWAY = Credentials("pulsar://127.0.0.1:1", "http://127.0.0.1:1")


async def test_what_the_client_warns_of_reaches_logging(caplog: pytest.LogCaptureFixture) -> None:
    client = connect(AWAY, operation_timeout=1.0)
    try:
        with caplog.at_level(logging.WARNING), pytest.raises(Exception, match=r"(?i)timeout|connect"):
            await blocking(client.create_producer, "persistent://public/default/t")
        await eventually(lambda: "127.0.0.1:1" in caplog.text)
    finally:
        await blocking(client.close)
    assert {record.name for record in caplog.records if "127.0.0.1:1" in record.message} == {
        "millrace.pulsar.client"
    }


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-11-18 13:27:01.123 WARN  [139] ClientConnection:512 | it broke", logging.WARNING),
        ("2026-11-18 13:27:01.123 ERROR [139] ProducerImpl:774 | no such topic", logging.ERROR),
        (
            "2026-11-18 13:27:01.123 ERROR [139] ProducerImpl:774 | Failed to close producer: AlreadyClosed",
            10,
        ),
        ("something else", logging.WARNING),
    ],
)
def test_a_line_of_the_client_is_as_loud_as_it_matters(line: str, level: int) -> None:
    assert _told(line)[0] == level


def test_a_process_that_drops_its_client_exits_cleanly() -> None:
    program = (
        "from millrace.pulsar.clients import connect\n"
        "from millrace.pulsar.credentials import Credentials\n"
        "client = connect(Credentials('pulsar://127.0.0.1:1', 'http://127.0.0.1:1'), operation_timeout=1)\n"
        "try:\n"
        "    client.create_producer('persistent://public/default/t')\n"
        "except Exception:\n"
        "    pass\n"
        "client.close()\n"
        "del client\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


async def test_waiting_for_a_blocking_call_does_not_block_the_loop() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(blocking(release.wait, 10))
    await asyncio.sleep(0)
    release.set()
    assert await waiting
