"""The transport against a real HTTP peer that misbehaves on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.pulsar.admin import Admin
from millrace.pulsar.credentials import Credentials, Token, fixed, from_file
from millrace.pulsar.errors import (
    Conflict,
    Forbidden,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    PulsarError,
    Rejected,
    Unauthorized,
    Unavailable,
)
from millrace.pulsar.transport import _retry_after

Handler = Callable[[web.Request], Awaitable[web.Response]]
TOPIC = "persistent://t/ns/a topic/with%odd"


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


def admin_of(url: str, *, timeout: float = 2.0, deadline: float = 2.0, **more: object) -> Admin:
    token = more.pop("token", fixed("secret"))
    credentials = Credentials("pulsar://unused:6650", url, Token(token))  # type: ignore[arg-type]
    return Admin(credentials, timeout=timeout, deadline=deadline, **more)  # type: ignore[arg-type]


def answers(
    *statuses: int, body: str = "[]", headers: dict[str, str] | None = None
) -> tuple[Handler, list[web.Request]]:
    """Answer with these statuses in turn, the last one for ever."""
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        status = statuses[min(len(seen), len(statuses) - 1)]
        seen.append(request)
        return web.Response(status=status, text=body, headers=headers if status >= 400 else None)

    return handle, seen


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_passing_failure_is_tried_again(status: int) -> None:
    handler, seen = answers(status, status, 200)
    async with peer(handler) as url, admin_of(url) as admin:
        assert await admin.clusters() == []
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (403, Forbidden),
        (404, NotFound),
        (405, Rejected),
        (409, Conflict),
        (412, PreconditionFailed),
    ],
)
async def test_a_definite_refusal_is_raised_at_once(status: int, kind: type[PulsarError]) -> None:
    handler, seen = answers(status, body='{"reason": "because"}')
    async with peer(handler) as url, admin_of(url) as admin:
        with pytest.raises(kind, match=rf"cannot list the clusters: {url} answered {status} \(because\); "):
            await admin.clusters()
    assert len(seen) == 1


async def test_only_a_topic_that_exists_counts_as_there_when_it_is_created() -> None:
    topic = "persistent://public/default/orders"
    handler, _ = answers(409, body='{"reason": "This topic already exists"}')
    async with peer(handler) as url, admin_of(url) as admin:
        assert not await admin.create_topic(topic, {})
    handler, _ = answers(409, body='{"reason": "Topic is being deleted"}')
    async with peer(handler) as url, admin_of(url) as admin:
        with pytest.raises(Conflict, match="is being deleted"):
            await admin.create_partitioned_topic(topic, 2, {})


async def test_a_lasting_failure_ends_as_unavailable_within_the_deadline() -> None:
    handler, seen = answers(503)
    async with peer(handler) as url, admin_of(url, deadline=1.0) as admin:
        started = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match=r"answered 503.*tried \d+ times") as caught:
            await admin.clusters()
        assert asyncio.get_running_loop().time() - started < 1.5
    assert caught.value.retryable
    assert len(seen) > 1


async def test_an_attempt_that_would_be_cut_off_at_once_is_not_begun_so_that_the_answer_is_told() -> None:
    handler, seen = answers(429, headers={"Retry-After": "2"})
    async with peer(handler) as url, admin_of(url, deadline=2.05) as admin:
        with pytest.raises(Unavailable, match=r"answered 429.*tried 1 times") as caught:
            await admin.clusters()
    assert caught.value.retry_after == 2.0
    assert len(seen) == 1


async def test_retry_after_is_waited_for_when_it_fits_the_deadline() -> None:
    handler, seen = answers(429, 200, headers={"Retry-After": "1"})
    async with peer(handler) as url, admin_of(url, deadline=5.0) as admin:
        started = asyncio.get_running_loop().time()
        await admin.clusters()
        assert asyncio.get_running_loop().time() - started >= 1.0
    assert len(seen) == 2


async def test_retry_after_beyond_the_deadline_is_handed_to_the_caller() -> None:
    handler, seen = answers(429, headers={"Retry-After": "60"})
    async with peer(handler) as url, admin_of(url) as admin:
        with pytest.raises(Unavailable) as caught:
            await admin.clusters()
    assert caught.value.retry_after == 60.0
    assert len(seen) == 1


async def test_a_slow_answer_is_a_timeout() -> None:
    release = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response(text="[]")

    async with peer(handle) as url:
        async with admin_of(url, timeout=0.2, deadline=0.5) as admin:
            with pytest.raises(Unavailable, match="did not answer within"):
                await admin.clusters()
        release.set()


async def test_no_server_is_unavailable_and_says_where() -> None:
    async with admin_of("http://127.0.0.1:1", deadline=0.5) as admin:
        with pytest.raises(Unavailable, match=r"no connection to http://127\.0\.0\.1:1 .*admin URL"):
            await admin.clusters()


async def test_a_token_that_rotates_is_picked_up_on_a_401(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("old\n")
    used: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        used.append(request.headers["Authorization"])
        if used[-1] == "Bearer new":
            return web.Response(text="[]")
        secret.write_text("new\n")
        return web.Response(status=401)

    async with peer(handle) as url, admin_of(url, token=from_file(secret)) as admin:
        await admin.clusters()
    assert used == ["Bearer old", "Bearer new"]


async def test_a_token_that_stays_refused_is_unauthorized_after_one_more_try() -> None:
    handler, seen = answers(401)
    async with peer(handler) as url, admin_of(url) as admin:
        with pytest.raises(Unauthorized, match="token or certificate"):
            await admin.clusters()
    assert len(seen) == 2


async def test_a_secret_that_is_missing_says_so(tmp_path: Path) -> None:
    async with admin_of("http://127.0.0.1:1", token=from_file(tmp_path / "absent")) as admin:
        with pytest.raises(Misconfigured, match="absent"):
            await admin.clusters()


async def test_a_redirect_to_the_owner_keeps_credentials_method_and_body() -> None:
    handler, seen = answers(204)
    bodies: list[str] = []

    async def owner(request: web.Request) -> web.Response:
        bodies.append(await request.text())
        return await handler(request)

    async with peer(owner) as target:

        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": target + request.raw_path})

        async with peer(redirect) as url, admin_of(url) as admin:
            assert await admin.create_partitioned_topic(TOPIC, 4, {"a": "b"})
    assert seen[0].method == "PUT"
    assert seen[0].raw_path == "/admin/v2/persistent/t/ns/a%20topic%2Fwith%25odd/partitions"
    assert seen[0].headers["Authorization"] == "Bearer secret"
    assert seen[0].content_type == "application/vnd.partitioned-topic-metadata+json"
    assert bodies == ['{"partitions": 4, "properties": {"a": "b"}}']


async def test_a_redirect_for_ever_is_given_up() -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": request.raw_path})

    async with peer(redirect) as url, admin_of(url, deadline=0.3) as admin:
        with pytest.raises(Unavailable, match="redirected more than"):
            await admin.clusters()


async def test_calls_under_way_are_bounded() -> None:
    running = most = 0
    full = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1
        return web.Response(text="[]")

    async with peer(handle) as url, admin_of(url, concurrency=3) as admin:
        await asyncio.gather(*(admin.clusters() for _ in range(12)))
    assert most == 3


async def test_every_request_is_observed_with_its_operation_and_status() -> None:
    handler, _ = answers(503, 200)
    observed: list[tuple[str, str, int]] = []

    def observer(method: str, operation: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        observed.append((method, operation, status))

    async with peer(handler) as url, admin_of(url, observer=observer) as admin:
        await admin.clusters()
    assert observed == [("GET", "clusters", 503), ("GET", "clusters", 200)]


async def test_deleting_what_is_gone_is_success() -> None:
    handler, seen = answers(404)
    async with peer(handler) as url, admin_of(url) as admin:
        await admin.delete_topic(TOPIC)
        await admin.delete_subscription(TOPIC, "s")
    assert len(seen) == 2


@pytest.mark.parametrize(
    "topic", ["name", "t/ns/name", "persistent://t/ns", "non-persistent://t/ns/n", "persistent:///a/b"]
)
async def test_a_name_that_is_not_complete_is_refused_before_anything_is_sent(topic: str) -> None:
    async with admin_of("http://127.0.0.1:1") as admin:
        with pytest.raises(Misconfigured, match="persistent://tenant/namespace/name"):
            await admin.properties(topic)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, None), ("", None), ("7", 7.0), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert _retry_after(value) == seconds
