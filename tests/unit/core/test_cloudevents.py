"""Messages as CloudEvents: what a producer wrote arrives, and is never taken for anything else."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from urllib.parse import unquote

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.client.partitions import ID_PROPERTY as ID_OF_PRODUCERS
from millrace.core.cloudevents import (
    DEFAULT_TYPE,
    ID_PROPERTY,
    MAX_HEADER_BYTES,
    OTHERS,
    Event,
    Undeliverable,
    attributes,
    batch_body,
    binary_headers,
    header_value,
)
from millrace.core.positions import Position

SOURCE = "/orders/incoming"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HOSTILE = [
    "",
    "a\r\nx: y",
    "\n",
    "\r",
    "\0",
    "é",
    "日本",
    "💥",
    "%0d%0a",
    '"',
    " lead",
    "\t",
    "\x7f",
    "\ud800",
]

any_text = st.text(st.characters()) | st.sampled_from(HOSTILE)
names = (
    any_text
    | st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True)
    | st.sampled_from(
        [
            "mr",
            "ce-id",
            "ce-source",
            "ce-type",
            "ce-time",
            "ce-subject",
            "ce-specversion",
            "ce-partitionkey",
            "ce-ok",
            "ok",
            "id",
            "data",
            "data_base64",
            "content-type",
            "traceparent",
            "tracestate",
            "millraceproperties",
        ]
    )
)
values = any_text | st.sampled_from([TRACE, "a=b", "application/json", "2027-01-15T08:00:00Z"])
positions = st.builds(
    Position, st.integers(0, 9), st.integers(0, 2**63), st.integers(0, 2**63), st.integers(-1, 99)
)
events = st.builds(
    Event,
    any_text,
    positions,
    st.integers(0, 2**64),
    st.dictionaries(names, values, max_size=8),
    st.binary(max_size=50),
)


def event(payload: bytes = b"", *, group_id: str = "g", time_ms: int = 0, **properties: str) -> Event:
    return Event(
        group_id,
        Position(0, 5, 6, 7),
        time_ms,
        {k.replace("_", "-"): v for k, v in properties.items()},
        payload,
    )


class Request:
    """A request as a server's parser sees it."""

    def __init__(self, data: bytes) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.completed = 0
        httptools.HttpRequestParser(self).feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("ascii"), value.decode("ascii")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.completed += 1


def received(sent: Event) -> dict[str, str]:
    """The headers of the request, percent-decoded where the binding encodes."""
    lines = binary_headers(sent, SOURCE).encode("ascii")
    length = b"content-length: %d\r\n" % len(sent.payload)
    request = Request(b"POST / HTTP/1.1\r\n" + lines + length + b"\r\n" + sent.payload)
    assert request.completed == 1
    assert request.body == sent.payload
    headers = dict(request.headers[:-1])
    assert len(headers) == len(request.headers) - 1, "no header stands twice"
    return {name: unquote(value) if name.startswith("ce-") else value for name, value in headers.items()}


def storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def test_the_usual_message() -> None:
    sent = event(b"hi", group_id="customer 7", time_ms=1_800_000_000_123, mr="producer:42")
    assert binary_headers(sent, SOURCE) == (
        "ce-specversion: 1.0\r\nce-id: producer:42\r\nce-source: /orders/incoming\r\n"
        "ce-type: dev.millrace.message\r\nce-time: 2027-01-15T08:00:00.123Z\r\n"
        "ce-partitionkey: customer%207\r\ncontent-type: application/octet-stream\r\n"
    )


def test_the_id_is_the_producers_or_else_the_position() -> None:
    assert ID_PROPERTY == ID_OF_PRODUCERS
    assert received(event())["ce-id"] == "0:5:6:7"
    assert received(event(mr="p:1"))["ce-id"] == "p:1"
    assert received(event(mr="p:1", ce_id="own"))["ce-id"] == "own"
    assert received(event(mr="p:1", ce_id=""))["ce-id"] == "p:1"


@given(events)
def test_the_short_way_and_the_long_way_say_the_same(sent: Event) -> None:
    plain = sent._replace(properties={k: v for k, v in sent.properties.items() if k == "mr"})
    try:
        lines = binary_headers(plain, SOURCE)
    except Undeliverable:
        return
    context, content_type, trace = attributes(plain, SOURCE)
    expected = [f"ce-{name}: {header_value(value)}" for name, value in context.items()]
    assert lines.split("\r\n") == ["ce-specversion: 1.0", *expected, f"content-type: {content_type}", ""]
    assert not trace


@given(events)
def test_whatever_a_producer_writes_is_one_valid_request_with_only_the_headers_that_are_ours(
    sent: Event,
) -> None:
    headers = received(sent)
    for name in headers:
        assert name.startswith("ce-") or name in ("content-type", "traceparent", "tracestate")
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-id"]
    assert headers["ce-type"]
    assert headers.get("ce-partitionkey", "") == storable(sent.group_id)


@given(events)
def test_every_property_arrives(sent: Event) -> None:
    headers = received(sent)
    others = json.loads(headers.get("ce-" + OTHERS, "{}"))
    for name, value in sent.properties.items():
        if name == "mr":
            continue
        places = [
            others.get(name),
            headers.get(name),
            headers.get("ce-" + name.removeprefix("ce-")),
        ]
        assert value in places or storable(value) in places or value.rstrip() in places


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_a_value(value: str) -> None:
    sent = event(group_id=value, tenant=value, ce_type=value, ce_subject=value)
    headers = received(sent)
    assert headers["ce-tenant"] == storable(value)
    assert headers["ce-type"] == (storable(value) or DEFAULT_TYPE)
    assert ("ce-subject" in headers) == bool(value)


@pytest.mark.parametrize("name", [*HOSTILE[1:], "X-Admin", "content-length", "Ce-Id", "a" * 21, "a_b"])
def test_a_property_whose_name_is_no_attribute_travels_as_json(name: str) -> None:
    headers = received(Event("g", Position(0, 1, 2), 0, {name: "v"}, b""))
    assert json.loads(headers["ce-" + OTHERS]) == {name: "v"}


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "source",
        "type",
        "time",
        "subject",
        "dataschema",
        "specversion",
        "partitionkey",
        "datacontenttype",
        "data",
        "millraceattempt",
        "millraceposition",
        "millraceproperties",
    ],
)
def test_a_property_that_is_called_like_an_attribute_of_the_event_does_not_become_it(name: str) -> None:
    headers = received(event(**{name: "forged"}))
    assert json.loads(headers["ce-" + OTHERS]) == {name: "forged"}


@pytest.mark.parametrize("name", ["ce-specversion", "ce-partitionkey", "ce-datacontenttype", "ce-data"])
def test_what_follows_from_something_else_cannot_be_set(name: str) -> None:
    headers = received(event(**{name: "forged"}))
    assert json.loads(headers["ce-" + OTHERS]) == {name: "forged"}


def test_an_attribute_wins_over_a_property_of_its_name_and_both_arrive() -> None:
    headers = received(event(ce_tenant="a", tenant="b"))
    assert headers["ce-tenant"] == "a"
    assert json.loads(headers["ce-" + OTHERS]) == {"tenant": "b"}


def test_a_time_is_taken_only_if_it_is_one() -> None:
    assert received(event(ce_time="2027-01-15T08:00:00+01:00"))["ce-time"] == "2027-01-15T08:00:00+01:00"
    for wrong in ("yesterday", "2027-13-40T08:00:00Z", "2027-01-15", ""):
        headers = received(event(ce_time=wrong))
        assert headers["ce-time"] == "1970-01-01T00:00:00.000Z"
        assert json.loads(headers["ce-" + OTHERS]) == {"ce-time": wrong}


def test_a_time_beyond_the_calendar_is_left_out() -> None:
    assert "ce-time" not in received(event(time_ms=2**64))
    assert "ce-time" not in received(event(time_ms=2**64, tenant="t"))


@pytest.mark.parametrize(
    ("content_type", "taken"),
    [
        ("application/json", True),
        ("text/plain; charset=latin-1", True),
        ("application/json\r\nx: y", False),
        ("json", False),
        ("", False),
        ("text/plain;\n", False),
        ("téxt/plain", False),
        ("a/" + "b" * 128, False),
    ],
)
def test_a_content_type_is_taken_only_if_it_is_one(content_type: str, taken: bool) -> None:
    headers = received(event(content_type=content_type))
    assert (headers["content-type"] == content_type) == taken
    assert (("ce-" + OTHERS) in headers) == (not taken)


def test_trace_context_becomes_headers() -> None:
    headers = received(event(traceparent=TRACE, tracestate="vendor=1,other=a b"))
    assert headers["traceparent"] == TRACE
    assert headers["tracestate"] == "vendor=1,other=a b"


@pytest.mark.parametrize(
    "properties",
    [
        {"traceparent": "00-abc-def-01", "tracestate": "a=b"},
        {"traceparent": TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)},
        {"traceparent": TRACE + "\r\nx: y"},
        {"tracestate": "a=b"},
    ],
)
def test_what_is_no_trace_context_is_an_ordinary_property(properties: dict[str, str]) -> None:
    headers = received(event(**properties))
    assert not {"traceparent", "tracestate"} & headers.keys()
    assert json.loads(headers["ce-" + OTHERS]) == properties


@pytest.mark.parametrize("letter", ["g", "é", "\n"])
def test_a_group_id_of_a_megabyte_is_refused_with_what_is_too_large(letter: str) -> None:
    with pytest.raises(Undeliverable, match=r"more than 16384 bytes.*the group id with 1000000 characters"):
        binary_headers(event(group_id=letter * 1_000_000), SOURCE)


def test_properties_that_are_too_large_together_are_refused_with_the_largest() -> None:
    small = {f"p{n}": "x" * 100 for n in range(100)}
    assert len(binary_headers(event(**small), SOURCE)) < MAX_HEADER_BYTES
    with pytest.raises(Undeliverable, match="the property 'big' with 9000 characters"):
        binary_headers(event(**small, big="y" * 9000), SOURCE)


@given(any_text)
def test_a_header_value_is_visible_ascii_and_decodes_to_what_it_was(value: str) -> None:
    encoded = header_value(value)
    assert all(0x21 <= ord(c) <= 0x7E and c not in '" ' for c in encoded)
    assert unquote(encoded) == storable(value)


def test_header_values_are_encoded_as_the_specification_has_it() -> None:
    """The examples of the HTTP protocol binding 1.0.2, section 3.1.3.2."""
    assert header_value("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"
    assert header_value("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~") == "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert header_value('"%') == "%22%25"


def documents(*sent: Event) -> list[Mapping[str, str]]:
    decoded: list[Mapping[str, str]] = json.loads(batch_body([(each, 3) for each in sent], SOURCE))
    return decoded


def test_a_batch_is_an_array_of_events() -> None:
    first, second = documents(
        event(b"\xff\x00", group_id="a", time_ms=1, mr="p:1"), event(b"{}", content_type="application/json")
    )
    assert first == {
        "specversion": "1.0",
        "id": "p:1",
        "source": SOURCE,
        "type": DEFAULT_TYPE,
        "time": "1970-01-01T00:00:00.001Z",
        "partitionkey": "a",
        "datacontenttype": "application/octet-stream",
        "millraceattempt": "3",
        "millraceposition": "0:5:6:7",
        "data_base64": base64.b64encode(b"\xff\x00").decode(),
    }
    assert second["data"] == {}
    assert second["datacontenttype"] == "application/json"


@pytest.mark.parametrize(
    ("content_type", "payload", "data"),
    [
        ("application/json", b'{"a": [1, 2.50]}', {"a": [1, 2.5]}),
        ("application/vnd.x+json; v=1", b"null", None),
        ("text/plain", "é\r\n\0".encode(), "é\r\n\0"),
        ("text/plain; charset=UTF-8", b"x", "x"),
    ],
)
def test_json_and_text_are_data(content_type: str, payload: bytes, data: object) -> None:
    [document] = documents(event(payload, content_type=content_type))
    assert document["data"] == data
    assert "data_base64" not in document


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("application/json", b"{"),
        ("application/json", b"NaN"),
        ("application/json", b'{"a": 1}, {"forged": 1}'),
        ("application/json", b"\xff"),
        ("application/json", b"[" * 100_000),
        ("application/json", b""),
        ("text/plain", b"\xff"),
        ("text/plain; charset=latin-1", b"x"),
        ("image/png", b"x"),
    ],
)
def test_what_is_not_what_it_says_is_base64(content_type: str, payload: bytes) -> None:
    [document] = documents(event(payload, content_type=content_type))
    assert base64.b64decode(document["data_base64"]) == payload
    assert "data" not in document


@given(st.lists(events, max_size=5))
def test_any_batch_is_json_with_one_document_an_event(sent: list[Event]) -> None:
    read = documents(*sent)
    assert len(read) == len(sent)
    for document, each in zip(read, sent, strict=True):
        assert document["id"] == each.id
        assert document.get("partitionkey", "") == each.group_id
        assert document["millraceposition"] == str(each.position)
        assert ("data" in document) != ("data_base64" in document)


def test_json_stays_as_it_was_written() -> None:
    body = batch_body([(event(b'{"n": 1.10e2,  "n": 2}', content_type="application/json"), 1)], SOURCE)
    assert b'"data":{"n": 1.10e2,  "n": 2}}' in body
