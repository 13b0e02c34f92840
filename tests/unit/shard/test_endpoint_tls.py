"""TLS towards endpoints: whom we believe, who we are, and files that change while we run."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from millrace.core.endpointurls import EndpointUrl
from millrace.shard.answers import Answer
from millrace.shard.certificates import TlsContexts, TlsFiles
from millrace.shard.endpoint import Endpoint
from tests.support.endpoints import Authority, answering, raw_endpoint
from tests.support.waiting import eventually

CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
REQUEST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def client_of(url: str, files: TlsFiles) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(EndpointUrl.parse(url), max_connections=2, timeout=10, tls=files)
    try:
        yield endpoint
    finally:
        async with asyncio.timeout(15):
            await endpoint.close()


async def post(client: Endpoint) -> Answer:
    async with asyncio.timeout(15):
        return await client.send(REQUEST, b"")


async def test_an_endpoint_of_a_trusted_authority_is_believed(authority: Authority) -> None:
    async with (
        raw_endpoint(answering(NO_CONTENT), authority.server_context()) as server,
        client_of(server.url, TlsFiles(authority.certificate)) as client,
    ):
        answers = [await post(client) for _ in range(3)]
    assert [answer.status for answer in answers] == [204] * 3
    assert len(server.peers) == 1


async def test_an_endpoint_of_another_authority_gets_nothing(
    authority: Authority, stranger: Authority
) -> None:
    async with (
        raw_endpoint(answering(NO_CONTENT), stranger.server_context()) as server,
        client_of(server.url, TlsFiles(authority.certificate)) as client,
    ):
        answer = await post(client)
    assert answer.status == 0
    assert "certificate" in answer.error.lower()
    assert server.requests == []


async def test_a_private_authority_is_not_believed_without_being_named(authority: Authority) -> None:
    async with (
        raw_endpoint(answering(NO_CONTENT), authority.server_context()) as server,
        client_of(server.url, TlsFiles()) as client,
    ):
        assert "certificate" in (await post(client)).error.lower()
    assert server.requests == []


async def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    async with (
        raw_endpoint(answering(NO_CONTENT), authority.server_context("elsewhere.example")) as server,
        client_of(server.url, TlsFiles(authority.certificate)) as client,
    ):
        assert "localhost" in (await post(client)).error
    assert server.requests == []


async def test_an_endpoint_without_tls_is_an_error(authority: Authority) -> None:
    async with (
        raw_endpoint(answering(NO_CONTENT)) as server,
        client_of(f"https://localhost:{server.port}/", TlsFiles(authority.certificate)) as client,
    ):
        connecting = asyncio.create_task(post(client))
        await eventually(lambda: bool(server.peers))
        await server.peers[0].say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        answer = await connecting
    assert answer.status == 0
    assert "cannot connect" in answer.error


async def test_an_authority_that_is_rotated_is_believed_at_the_next_connection(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    shutil.copy(stranger.certificate, ca)
    async with (
        raw_endpoint(answering(CLOSING, close=True), authority.server_context()) as server,
        client_of(server.url, TlsFiles(ca)) as client,
    ):
        assert (await post(client)).status == 0
        shutil.copy(authority.certificate, ca)
        assert (await post(client)).status == 200
        ca.write_text("half a certificate")
        assert (await post(client)).status == 0
        ca.unlink()
        assert "cannot connect" in (await post(client)).error
        shutil.copy(authority.certificate, ca)
        assert (await post(client)).status == 200


async def test_an_endpoint_that_asks_for_a_certificate_gets_ours(
    authority: Authority, stranger: Authority
) -> None:
    certificate, key = stranger.issue("client")
    tls = authority.server_context(clients=stranger)
    async with raw_endpoint(answering(NO_CONTENT), tls) as server:
        async with client_of(server.url, TlsFiles(authority.certificate, certificate, key)) as client:
            assert (await post(client)).status == 204
        async with client_of(server.url, TlsFiles(authority.certificate)) as client:
            assert (await post(client)).status == 0
    assert len(server.requests) == 1


async def test_a_client_certificate_is_read_again_when_it_changes(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    mounted = (tmp_path / "tls.crt", tmp_path / "tls.key")
    for source, target in zip(authority.issue("wrong"), mounted, strict=True):
        shutil.copy(source, target)
    tls = authority.server_context(clients=stranger)
    async with (
        raw_endpoint(answering(CLOSING, close=True), tls) as server,
        client_of(server.url, TlsFiles(authority.certificate, *mounted)) as client,
    ):
        assert (await post(client)).status == 0
        for source, target in zip(stranger.issue("right"), mounted, strict=True):
            shutil.copy(source, target)
        assert (await post(client)).status == 200


def test_files_that_did_not_change_are_not_read_again(authority: Authority) -> None:
    contexts = TlsContexts(TlsFiles(authority.certificate))
    assert contexts.current() is contexts.current()
