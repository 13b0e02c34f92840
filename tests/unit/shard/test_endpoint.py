"""The client against endpoints on loopback, most of which misbehave; on both event loops."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.core.endpointurls import EndpointUrl
from millrace.shard.answers import Answer
from millrace.shard.endpoint import Endpoint
from tests.support.endpoints import Peer, RawEndpoint, Script, answering, raw_endpoint
from tests.support.waiting import eventually

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 5\r\n\r\nlater"


@asynccontextmanager
async def client_of(
    url: str,
    *,
    connections: int = 4,
    patience: float = 10.0,
    connect_timeout: float = 5.0,
    idle: float = 60.0,
) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(
        EndpointUrl.parse(url),
        max_connections=connections,
        timeout=patience,
        connect_timeout=connect_timeout,
        idle_seconds=idle,
    )
    try:
        yield endpoint
    finally:
        async with asyncio.timeout(15):
            await endpoint.close()
        assert endpoint.connections == 0
        assert endpoint.in_flight == 0


@asynccontextmanager
async def both(
    script: Script, *, connections: int = 4, patience: float = 10.0, idle: float = 60.0
) -> AsyncIterator[tuple[RawEndpoint, Endpoint]]:
    async with (
        raw_endpoint(script) as server,
        client_of(server.url, connections=connections, patience=patience, idle=idle) as client,
    ):
        yield server, client


async def post(client: Endpoint, body: bytes = b"x") -> Answer:
    async with asyncio.timeout(30):
        return await client.send(head(body), body)


def head(body: bytes) -> bytes:
    return b"POST /hook HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)


async def silent(endpoint: RawEndpoint, peer: Peer) -> None:
    while (request := await peer.request()) is not None:
        endpoint.requests.append(request)


# What goes well


async def test_requests_reach_a_real_server_and_answers_come_back_over_one_connection() -> None:
    bodies: list[bytes] = []
    ports: set[object] = set()

    async def handle(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return web.Response(status=200 if len(bodies) % 2 else 422, text="no")

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/hook", handle)
    async with TestServer(app) as server, client_of(str(server.make_url("/hook"))) as client:
        sent = [b"", b"x" * 1000, b"y" * (5 * 2**20), b"z"]
        answers = [await post(client, body) for body in sent]
    assert bodies == sent
    assert [answer.status for answer in answers] == [200, 422, 200, 422]
    assert answers[1].said == b"no"
    assert len(ports) == 1


async def test_a_refusal_brings_its_words_and_its_wish() -> None:
    async with both(answering(BUSY)) as (_, client):
        answer = await post(client)
    assert (answer.status, answer.said, answer.retry_after, answer.error) == (503, b"later", "9", "")


async def test_there_are_never_more_connections_than_allowed_and_all_requests_have_their_turn_in_order() -> (
    None
):
    async with both(answering(NO_CONTENT), connections=3) as (server, client):
        answers = await asyncio.gather(*(post(client, b"%03d" % number) for number in range(50)))
        assert client.connections <= 3
    assert {answer.status for answer in answers} == {204}
    assert server.most_open <= 3
    assert sorted(request[-3:] for request in server.requests) == [b"%03d" % number for number in range(50)]


async def test_one_connection_carries_the_requests_in_the_order_in_which_they_were_posted() -> None:
    async with both(answering(NO_CONTENT), connections=1) as (server, client):
        await asyncio.gather(*(post(client, b"%03d" % number) for number in range(50)))
    assert [request[-3:] for request in server.requests] == [b"%03d" % number for number in range(50)]
    assert len(server.peers) == 1


async def test_a_callback_may_post_the_next_request() -> None:
    async with both(answering(NO_CONTENT), connections=2) as (server, client):
        left, finished = 200, asyncio.Event()

        def done(answer: Answer) -> None:
            nonlocal left
            assert answer.status == 204
            left -= 1
            if left > 1:
                client.post(head(b"x"), b"x", done)
            elif left == 0:
                finished.set()

        client.post(head(b"x"), b"x", done)
        client.post(head(b"x"), b"x", done)
        async with asyncio.timeout(10):
            await finished.wait()
    assert len(server.requests) == 200


# Answers of every form


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + NO_CONTENT, 204, b""),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 500, b"abc"),
        (b"HTTP/1.0 500 No\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc", 500, b"abc"),
    ],
)
async def test_the_connection_is_used_again_after(answer: bytes, status: int, said: bytes) -> None:
    async with both(answering(answer)) as (server, client):
        for _ in range(3):
            got = await post(client)
            assert (got.status, got.said) == (status, said)
    assert len(server.peers) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_each_request_has_its_own_connection_if_the_endpoint_closes_it(answer: bytes) -> None:
    async with both(answering(answer, close=True)) as (server, client):
        for _ in range(3):
            assert (await post(client)).status == 200
    assert len(server.peers) == len(server.requests) == 3


async def test_requests_that_wait_get_new_connections_in_place_of_closed_ones() -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with both(answering(answer, close=True), connections=2) as (server, client):
        answers = await asyncio.gather(*(post(client) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert len(server.peers) == 10


async def test_an_endpoint_that_closes_without_a_word_after_an_answer_is_connected_to_again() -> None:
    async with both(answering(NO_CONTENT, close=True)) as (server, client):
        for _ in range(3):
            assert (await post(client)).status == 204
            await eventually(lambda: client.connections == 0)
    assert len(server.peers) == 3


async def test_an_answer_that_nobody_asked_for_is_never_the_answer_to_the_next_request() -> None:
    """A success that the endpoint never gave would lose a message."""
    async with both(answering(BUSY + NO_CONTENT)) as (server, client):
        for _ in range(3):
            assert (await post(client)).status == 503
    assert len(server.peers) == 3


async def test_bytes_on_an_idle_connection_end_it() -> None:
    async with both(answering(NO_CONTENT)) as (server, client):
        await post(client)
        await server.peers[0].say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await eventually(lambda: client.connections == 0)
        assert (await post(client)).status == 204
    assert len(server.peers) == 2


async def test_a_body_without_end_is_not_read_for_ever() -> None:
    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.say(b"1000\r\n" + b"z" * 4096 + b"\r\n")

    async with both(script) as (_, client):
        answer = await post(client)
        assert (answer.status, answer.said) == (500, b"z" * 512)
        await eventually(lambda: client.connections == 0)


# What is no answer: always an error, always exactly one request


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "in the middle"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "in the middle"),
        (b"HTTP/1.1 101 Hm\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "another protocol"),
    ],
)
async def test_a_request_without_a_proper_answer_fails_and_is_not_sent_again(
    answer: bytes, says: str
) -> None:
    async with both(answering(answer, close=True)) as (server, client):
        got = await post(client)
        assert got.status == 0
        assert says in got.error
        assert len(server.requests) == 1
        await eventually(lambda: server.open == 0)
    assert len(server.requests) == 1
    assert len(server.peers) == 1


async def test_a_reset_fails_the_request_and_nothing_else() -> None:
    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            endpoint.requests.append(request)
            if request.endswith(b"reset"):
                peer.reset()
                return
            await peer.say(NO_CONTENT)

    async with both(script) as (server, client):
        answers = await asyncio.gather(*(post(client, body) for body in (b"a", b"reset", b"c")))
        assert [answer.status for answer in answers] == [204, 0, 204]
        assert answers[1].error
        assert (await post(client)).status == 204
    assert len(server.requests) == 4


# Time


async def test_no_answer_in_time_is_an_error() -> None:
    async with both(silent, patience=0.2) as (server, client):
        begin = asyncio.get_running_loop().time()
        answer = await post(client)
        took = asyncio.get_running_loop().time() - begin
    assert answer.status == 0
    assert "no answer" in answer.error
    assert "within 0.2 s" in answer.error
    assert 0.2 <= took < 5
    assert len(server.requests) == 1


async def test_an_answer_that_drips_does_not_buy_time() -> None:
    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await peer.say(b"y")
            await asyncio.sleep(0.02)

    async with both(script, patience=0.3) as (_, client):
        assert "no answer" in (await post(client)).error


async def test_a_late_answer_is_not_the_answer_to_the_next_request() -> None:
    given_up = asyncio.Event()

    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            endpoint.requests.append(request)
            if request.endswith(b"slow"):
                await given_up.wait()
                await peer.say(NO_CONTENT)
            else:
                await peer.say(BUSY)

    async with both(script, connections=1, patience=0.2) as (server, client):
        assert (await post(client, b"slow")).status == 0
        given_up.set()
        assert (await post(client, b"fast")).status == 503
    assert len(server.peers) == 2


async def test_a_request_that_never_has_its_turn_fails_in_time() -> None:
    async with both(silent, connections=1, patience=0.2) as (server, client):
        answers = await asyncio.gather(*(post(client, b"%d" % number) for number in range(5)))
    assert all("within 0.2 s" in answer.error for answer in answers)
    assert len(server.requests) <= 2


async def test_idle_connections_are_closed_before_the_endpoint_would() -> None:
    async with both(answering(NO_CONTENT), idle=0.1) as (server, client):
        await asyncio.gather(*(post(client) for _ in range(4)))
        assert client.connections > 0
        await eventually(lambda: client.connections == 0)
        await eventually(lambda: server.open == 0)
        assert (await post(client)).status == 204


async def test_a_connection_that_is_needed_stays_while_others_grow_old() -> None:
    async with both(answering(NO_CONTENT), idle=0.3) as (server, client):
        await asyncio.gather(*(post(client) for _ in range(4)))

        async def only_one_is_left() -> bool:
            assert (await post(client)).status == 204
            return client.connections == 1

        await eventually(only_one_is_left, interval=0.01)
    assert len(server.peers) <= 4


# Connections that cannot be had


async def test_every_request_to_an_endpoint_that_is_not_there_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with client_of(f"http://127.0.0.1:{port}/", connections=2) as client:
            answers = await asyncio.gather(*(post(client) for _ in range(10)))
    assert all(answer.status == 0 for answer in answers)
    assert all(f"cannot connect to http://127.0.0.1:{port}" in answer.error for answer in answers)


async def test_an_endpoint_that_comes_up_later_is_found() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}/") as client:
        assert (await post(client)).status == 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"x")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", port)
        assert (await post(client)).status == 200
        server.close()


async def test_a_connection_that_is_not_made_in_time_is_an_error() -> None:
    """The listener accepts, but what it speaks is not TLS: it says nothing at all."""
    async with (
        raw_endpoint(silent) as server,
        client_of(f"https://localhost:{server.port}/", connect_timeout=0.2) as client,
    ):
        answer = await post(client)
    assert "no connection" in answer.error
    assert "within 0.2 s" in answer.error


# The end


async def test_closing_waits_for_answers_and_takes_no_new_requests() -> None:
    released = asyncio.Event()

    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            endpoint.requests.append(request)
            await released.wait()
            await peer.say(NO_CONTENT)

    async with raw_endpoint(script) as server, client_of(server.url, connections=2) as client:
        posted = [asyncio.create_task(post(client)) for _ in range(4)]
        await eventually(lambda: len(server.requests) == 2)
        closing = asyncio.create_task(client.close())
        late = asyncio.create_task(post(client))
        assert "being closed" in (await late).error
        assert not closing.done()
        released.set()
        assert [answer.status for answer in await asyncio.gather(*posted)] == [204] * 4
        await closing
        assert client.connections == 0
    assert len(server.requests) == 4


async def test_closing_ends_although_an_endpoint_never_answers() -> None:
    async with both(silent, connections=1, patience=0.2) as (server, client):
        posted = [asyncio.create_task(post(client)) for _ in range(3)]
        await eventually(lambda: len(server.requests) == 1)
        async with asyncio.timeout(10):
            await client.close()
        assert {answer.status for answer in await asyncio.gather(*posted)} == {0}


async def test_aborting_fails_everything_at_once() -> None:
    async with both(silent, connections=2) as (server, client):
        posted = [asyncio.create_task(post(client)) for _ in range(5)]
        await eventually(lambda: len(server.requests) == 2)
        client.abort()
        assert client.in_flight == 0
        assert {answer.status for answer in await asyncio.gather(*posted)} == {0}
        assert client.connections == 0
        await eventually(lambda: server.open == 0)


async def test_a_callback_that_raises_is_reported_and_harms_nobody_else() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

    def failing(answer: Answer) -> None:
        raise RuntimeError("this callback is broken")

    async with both(silent, connections=2, patience=0.2) as (_, client):
        client.post(head(b"x"), b"x", failing)
        assert (await post(client)).status == 0
        await eventually(lambda: bool(reported))
    assert "this callback is broken" in str(reported[0]["exception"])


async def test_whoever_gives_up_waiting_leaves_the_connection_in_order() -> None:
    released = asyncio.Event()

    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            endpoint.requests.append(request)
            await released.wait()
            await peer.say(BUSY if request.endswith(b"first") else NO_CONTENT)

    async with both(script, connections=1) as (server, client):
        impatient = asyncio.create_task(client.send(head(b"first"), b"first"))
        await eventually(lambda: len(server.requests) == 1)
        impatient.cancel()
        released.set()
        assert (await post(client, b"second")).status == 204


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_made_just_when_it_is_given_up_holds_up_no_request(turns: int) -> None:
    async with raw_endpoint(answering(NO_CONTENT)) as server:
        url = server.url.replace("localhost", "127.0.0.1")  # no thread that would look the name up
        async with client_of(url, connect_timeout=0.05, patience=60.0) as client:
            first = asyncio.ensure_future(post(client))
            for _ in range(turns):
                await asyncio.sleep(0)
            time.sleep(0.1)  # noqa: ASYNC251 - a loop that stands still meets the end and the time-out at once
            async with asyncio.timeout(10):
                await first
                assert (await post(client)).status == 204
