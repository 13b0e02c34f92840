"""The HTTP client of shards against wrk: requests per second to the same nginx, in the same run.

nginx is one worker that answers 204 to everything; both sides post the same body with the same headers over
the same number of connections. They take turns, so that a slow moment of the machine meets both.

- bare: a host and a length, the least that a request has. The client alone.
- cloudevents: with the headers of a message. wrk repeats one head, we make one for each message.
- signed: the same with a signature of each body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from millrace.core.cloudevents import Event
from millrace.core.endpointurls import EndpointUrl
from millrace.core.positions import Position
from millrace.core.shardconfig import DeliveryConfig
from millrace.shard.answers import Answer
from millrace.shard.endpoint import Endpoint
from millrace.shard.requests import Requests

GOAL = 0.7
PACKAGES = {"nginx": "nginx-light", "wrk": "wrk"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

NGINX = """
daemon off; master_process off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; client_body_temp_path {directory}/bodies;
    proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u;
    scgi_temp_path {directory}/s; client_body_buffer_size 64k;
    server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 204; }} }}
}}
"""

Head = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side did."""

    requests_per_second: float
    cpu_microseconds: float = 0.0
    """Of our own process, for one request."""


def ensure_programs() -> None:
    """Install what is missing, or say what to do."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise SystemExit(f"install these with the system's package manager, and repeat: {', '.join(missing)}")
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-yq", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(
                f"`{' '.join(command)}` failed: {(done.stdout + done.stderr).strip()[-600:]}\n"
                f"Correct the package sources, or install {', '.join(missing)} by hand, and repeat."
            )


@contextmanager
def nginx() -> Iterator[str]:
    """An nginx of our own on a free port; gives its URL."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        config = Path(directory) / "nginx.conf"
        config.write_text(NGINX.format(directory=directory, port=port))
        server = subprocess.Popen(["nginx", "-c", str(config), "-p", directory], stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, server)
            yield f"http://127.0.0.1:{port}/hook"
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("nginx did not start; run it by hand with a configuration of its own to see why")


def wrk(url: str, args: argparse.Namespace, head: bytes) -> Turn:
    """One turn of wrk, with one thread, and with the headers of this head."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f'wrk.method = "POST"\nwrk.body = string.rep("x", {args.size})\n')
        for line in head.decode().split("\r\n")[1:-2]:
            name, value = line.split(": ", 1)
            if name not in ("host", "content-length"):  # wrk has its own
                script.write(f'wrk.headers["{name}"] = "{value}"\n')
        script.flush()
        done = subprocess.run(
            ["wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}s", "-s", script.name, url],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if found is None or "Non-2xx" in done.stdout:
        raise SystemExit(f"wrk did not get its answers: {done.stdout}")
    return Turn(float(found[1]))


async def ours(url: str, args: argparse.Namespace, head: Head) -> Turn:
    """One turn of our client; `head` makes the head of request number n."""
    endpoint = Endpoint(EndpointUrl.parse(url), max_connections=args.connections, timeout=30)
    loop = asyncio.get_running_loop()
    body = b"x" * args.size
    started = answered = 0
    ended: asyncio.Future[None] = loop.create_future()
    begin, cpu = time.perf_counter(), time.process_time()
    stop = False

    def done(answer: Answer) -> None:
        nonlocal started, answered
        if answer.status != 204:
            raise SystemExit(f"nginx did not take a request: {answer}")
        answered += 1
        if not stop:
            started += 1
            endpoint.post(head(started), body, done)
        elif answered == started:
            ended.set_result(None)

    for _ in range(args.connections):
        started += 1
        endpoint.post(head(started), body, done)
    await asyncio.sleep(args.seconds)
    stop = True
    await ended
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    await endpoint.close()
    return Turn(answered / seconds, cpu / answered * 1e6)


def heads(url: str, args: argparse.Namespace, secret: Path) -> dict[str, Head]:
    """The three ways to make a head."""
    payload = b"x" * args.size
    plain = Requests(DeliveryConfig(url), "bench/topic")
    signing = Requests(DeliveryConfig(url, signing_secret_file=str(secret)), "bench/topic")
    authority = EndpointUrl.parse(url).authority
    bare = f"POST /hook HTTP/1.1\r\nhost: {authority}\r\ncontent-length: {args.size}\r\n\r\n".encode()
    return {
        "bare": lambda _n: bare,
        "cloudevents": lambda n: plain.head(_event(n, payload), epoch=1, attempt=1, now=time.time()),
        "signed": lambda n: signing.head(_event(n, payload), epoch=1, attempt=1, now=time.time()),
    }


def _event(number: int, payload: bytes) -> Event:
    properties = {"mr": f"4fb2a1c09d3e:{number}"}
    return Event(
        f"customer-{number % 1000}",
        Position(0, 7, number, 3),
        1_800_000_000_000 + number,
        properties,
        payload,
    )


def measure(args: argparse.Namespace) -> bool:
    """Take turns; whether the client alone reached the goal."""
    ensure_programs()
    with nginx() as url, tempfile.NamedTemporaryFile("w") as secret:
        secret.write(SECRET)
        secret.flush()
        ways = heads(url, args, Path(secret.name))
        turns: dict[str, list[tuple[Turn, Turn]]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, head in ways.items():
                turns[name].append((wrk(url, args, head(1)), uvloop.run(ours(url, args, head))))
    reached = True
    for name, pairs in turns.items():
        ratio = statistics.median(own.requests_per_second / base.requests_per_second for base, own in pairs)
        _print(
            "endpoint",
            request=name,
            connections=args.connections,
            wrk_requests_per_second=round(_median([base for base, _ in pairs])),
            requests_per_second=round(_median([own for _, own in pairs])),
            cpu_microseconds=round(statistics.median(own.cpu_microseconds for _, own in pairs), 1),
            ratio=round(ratio, 2),
            **({"goal": GOAL} if name == "bare" else {}),
        )
        reached = reached and (name != "bare" or ratio >= GOAL)
    return reached


def _median(turns: list[Turn]) -> float:
    return statistics.median(turn.requests_per_second for turn in turns)


def _print(measurement: str, **values: object) -> None:
    print(json.dumps({"measurement": measurement, **values}), flush=True)


def main() -> int:
    """Exit code 1 when the goal was missed."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seconds", type=int, default=4, help="of one turn")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return 0 if measure(parser.parse_args()) else 1
