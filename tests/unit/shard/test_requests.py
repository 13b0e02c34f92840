"""Requests as bytes: what the endpoint's parser reads, and files that change while requests are made."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.api.delivery import Method
from millrace.core.cloudevents import Event, Undeliverable
from millrace.core.endpointurls import InvalidUrl
from millrace.core.positions import Position
from millrace.core.shardconfig import DeliveryConfig, HeaderConfig
from millrace.core.webhooks import InvalidSecret, Signer
from millrace.shard.requests import InvalidHeader, Requests

NOW = 1_800_000_000.0
URL = "http://endpoint.example:8080/hook?x=1"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of enough length").decode()
EVENT = Event("g1", Position(0, 5, 6, 7), 1_700_000_000_000, {"mr": "p:1"}, b"payload")
texts = st.text(st.characters(), max_size=30) | st.sampled_from(["a\r\nb: c", "\0", "\n", "é"])


class Parsed:
    def __init__(self, data: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.url = b""
        self.body = b""
        self.completed = 0
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method()
        self.keeps_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        assert name.decode().lower() not in self.headers
        self.headers[name.decode().lower()] = value.decode("ascii")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.completed += 1


def parsed(requests: Requests, event: Event = EVENT, now: float = NOW) -> Parsed:
    request = Parsed(requests.head(event, epoch=4, attempt=2, now=now) + event.payload)
    assert request.completed == 1
    assert request.body == event.payload
    return request


def test_a_request_says_where_it_goes_what_it_is_and_who_sends_it() -> None:
    request = parsed(Requests(DeliveryConfig(URL, headers=(HeaderConfig("X-Team", "billing"),)), "ns/topic"))
    assert (request.method, request.url) == (b"POST", b"/hook?x=1")
    assert request.keeps_alive
    assert request.headers == {
        "host": "endpoint.example:8080",
        "user-agent": "millrace",
        "x-team": "billing",
        "ce-specversion": "1.0",
        "ce-id": "p:1",
        "ce-source": "/ns/topic",
        "ce-type": "dev.millrace.message",
        "ce-time": "2023-11-14T22:13:20.000Z",
        "ce-partitionkey": "g1",
        "content-type": "application/octet-stream",
        "millrace-epoch": "4",
        "millrace-attempt": "2",
        "millrace-position": "0:5:6:7",
        "content-length": "7",
    }


def test_the_method_is_the_subscriptions() -> None:
    assert parsed(Requests(DeliveryConfig(URL, Method.PUT), "ns/topic")).method == b"PUT"


@given(texts, st.dictionaries(texts, texts, max_size=5), st.binary(max_size=100))
def test_whatever_a_message_holds_it_is_exactly_one_request(
    group_id: str, properties: dict[str, str], payload: bytes
) -> None:
    requests = Requests(DeliveryConfig(URL), "ns/topic")
    request = parsed(requests, Event(group_id, Position(0, 1, 2), 0, properties, payload))
    assert request.headers["millrace-epoch"] == "4"
    assert request.headers["host"] == "endpoint.example:8080"


def test_a_group_id_of_a_megabyte_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(Undeliverable, match="group id"):
        Requests(DeliveryConfig(URL), "ns/topic").head(
            EVENT._replace(group_id="x" * 1_000_000), epoch=1, attempt=1, now=NOW
        )


def test_a_request_is_signed_with_what_the_endpoint_sees(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    requests = Requests(DeliveryConfig(URL, signing_secret_file=str(secret)), "ns/topic")
    event = EVENT._replace(properties={"mr": "odd id\r\n"})
    headers = parsed(requests, event).headers
    assert headers["webhook-id"] == "odd%20id%0D%0A"
    assert headers["webhook-timestamp"] == "1800000000"
    expected = Signer.parse(SECRET).headers("odd%20id%0D%0A", 1_800_000_000, event.payload)
    assert f"webhook-signature: {headers['webhook-signature']}\r\n" in expected


def test_a_batch_is_one_signed_request_with_an_id_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    requests = Requests(DeliveryConfig(URL, signing_secret_file=str(secret)), "ns/topic")
    other = EVENT._replace(properties={"mr": "p:2"}, group_id="x" * 1_000_000)
    head, body = requests.batch([(EVENT, 1), (other, 3)], epoch=4, now=NOW)
    request = Parsed(head + body)
    assert request.completed == 1
    assert request.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert request.headers["millrace-epoch"] == "4"
    assert [(each["id"], each["millraceattempt"]) for each in json.loads(request.body)] == [
        ("p:1", "1"),
        ("p:2", "3"),
    ]
    again, _ = requests.batch([(EVENT, 2), (other, 4)], epoch=5, now=NOW + 9)
    assert Parsed(again + body).headers["webhook-id"] == request.headers["webhook-id"]
    alone, body = requests.batch([(EVENT, 2)], epoch=5, now=NOW + 9)
    assert Parsed(alone + body).headers["webhook-id"] != request.headers["webhook-id"]


def test_header_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    (tmp_path / "Authorization").write_text("Bearer one\n")
    (tmp_path / "..data").mkdir()
    requests = Requests(DeliveryConfig(URL, headers_directory=str(tmp_path)), "ns/topic")
    assert parsed(requests).headers["authorization"] == "Bearer one"
    (tmp_path / "Authorization").write_text("Bearer number two")
    (tmp_path / "X-New").write_text("yes")
    headers = parsed(requests, now=NOW + 1).headers
    assert (headers["authorization"], headers["x-new"]) == ("Bearer number two", "yes")
    (tmp_path / "X-New").unlink()
    assert "x-new" not in parsed(requests, now=NOW + 2).headers


def test_a_rotation_by_symbolic_link_as_kubernetes_does_it_is_seen(tmp_path: Path) -> None:
    for generation in ("one", "two"):
        (tmp_path / f"..{generation}").mkdir()
        (tmp_path / f"..{generation}" / "Authorization").write_text(generation)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "Authorization").symlink_to("..data/Authorization")
    requests = Requests(DeliveryConfig(URL, headers_directory=str(tmp_path)), "ns/topic")
    assert parsed(requests).headers["authorization"] == "one"
    (tmp_path / "..data_tmp").symlink_to("..two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert parsed(requests, now=NOW + 1).headers["authorization"] == "two"


def test_files_are_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    (tmp_path / "Key").write_text("one")
    requests = Requests(DeliveryConfig(URL, headers_directory=str(tmp_path)), "ns/topic")
    assert parsed(requests).headers["key"] == "one"
    (tmp_path / "Key").write_text("another")
    assert parsed(requests, now=NOW + 0.99).headers["key"] == "one"
    assert parsed(requests, now=NOW + 1).headers["key"] == "another"


@pytest.mark.parametrize("broken", ["a\r\nx-admin: yes", "a\0b", "é", "x" * 9000])
def test_a_value_that_became_unusable_leaves_the_last_good_one_in_use_until_it_is_mended(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "Key").write_text("good")
    requests = Requests(DeliveryConfig(URL, headers_directory=str(tmp_path)), "ns/topic")
    (tmp_path / "Key").write_bytes(broken.encode())
    with caplog.at_level(logging.WARNING):
        assert parsed(requests).headers["key"] == "good"
        assert parsed(requests, now=NOW + 1).headers["key"] == "good"
    assert len(caplog.records) == 1
    assert broken not in caplog.text
    (tmp_path / "Key").write_text("mended")
    assert parsed(requests, now=NOW + 2).headers["key"] == "mended"


def test_a_directory_that_is_gone_for_a_moment_stops_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "headers"
    directory.mkdir()
    (directory / "Key").write_text("one")
    requests = Requests(DeliveryConfig(URL, headers_directory=str(directory)), "ns/topic")
    directory.rename(tmp_path / "away")
    assert parsed(requests).headers["key"] == "one"
    (tmp_path / "away").rename(directory)
    (directory / "Key").write_text("changed")
    assert parsed(requests, now=NOW + 1).headers["key"] == "changed"


def test_the_signing_secret_is_read_again_when_it_changes(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    requests = Requests(DeliveryConfig(URL, signing_secret_file=str(secret)), "ns/topic")
    before = parsed(requests).headers["webhook-signature"]
    secret.write_text(f"{OTHER} {SECRET}")
    after = parsed(requests, now=NOW + 1).headers["webhook-signature"]
    assert len(before.split()) == 1
    assert len(after.split()) == 2
    secret.write_text("no secret at all")
    assert len(parsed(requests, now=NOW + 2).headers["webhook-signature"].split()) == 2


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "a b", "", "a:b", "é"]
)
def test_a_header_that_would_break_the_request_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(InvalidHeader):
        Requests(DeliveryConfig(URL, headers=(HeaderConfig(name, "x"),)), "ns/topic")


def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="headers"):
        Requests(DeliveryConfig(URL, headers_directory=str(tmp_path / "headers")), "ns/topic")
    (tmp_path / "secret").write_text("short")
    with pytest.raises(InvalidSecret):
        Requests(DeliveryConfig(URL, signing_secret_file=str(tmp_path / "secret")), "ns/topic")
    with pytest.raises(InvalidUrl):
        Requests(DeliveryConfig("ftp://endpoint"), "ns/topic")
