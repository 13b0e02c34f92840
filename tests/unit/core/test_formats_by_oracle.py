"""The formats' own libraries read what we write: CloudEvents and Standard Webhooks."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
import standardwebhooks
from cloudevents.core.bindings import http as bindings
from cloudevents.core.formats import json as formats
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.cloudevents import DEFAULT_TYPE, OTHERS, Event, batch_body, binary_headers
from millrace.core.positions import Position
from millrace.core.webhooks import Signer

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
extensions = st.dictionaries(
    st.from_regex(r"x[a-z0-9]{1,12}", fullmatch=True), words | st.just("a\r\nb: c"), max_size=4
)
events = st.builds(
    Event,
    words,
    st.builds(Position, st.integers(0, 9), st.integers(0, 2**60), st.integers(0, 2**60)),
    st.integers(0, 4_000_000_000_000),
    st.builds(lambda known, more: {**known, **more}, st.just({"mr": "p:1", "Odd Name": "é"}), extensions),
    st.binary(max_size=100),
)


def check(read: Any, sent: Event) -> None:
    assert read.get_id() == sent.id
    assert read.get_source() == "/ns/topic"
    assert read.get_type() == DEFAULT_TYPE
    assert round(read.get_time().timestamp() * 1000) == sent.time_ms
    assert read.get_extension("partitionkey") == sent.group_id
    assert json.loads(read.get_extension(OTHERS)) == {"Odd Name": "é"}
    for name, value in sent.properties.items():
        if name.startswith("x"):
            assert read.get_extension(name) == value
    data = read.get_data()
    assert (data.encode() if isinstance(data, str) else data or b"") == sent.payload


@given(events)
def test_the_cloudevents_library_reads_binary_mode(sent: Event) -> None:
    lines = binary_headers(sent, "/ns/topic").split("\r\n")[:-1]
    headers = dict(line.split(": ", 1) for line in lines)
    check(bindings.from_binary(bindings.HTTPMessage(headers, sent.payload), formats.JSONFormat()), sent)


@given(st.lists(events, max_size=3))
def test_the_cloudevents_library_reads_every_event_of_a_batch(sent: list[Event]) -> None:
    documents = json.loads(batch_body([(each, 1) for each in sent], "/ns/topic"))
    for document, each in zip(documents, sent, strict=True):
        check(formats.JSONFormat().read(None, json.dumps(document)), each)


@given(st.binary(min_size=24, max_size=64), st.from_regex(r"[!-~]{1,40}", fullmatch=True), words)
def test_the_standardwebhooks_library_verifies_our_signature(key: bytes, message_id: str, body: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    lines = Signer.parse(secret).headers(message_id, int(time.time()), body.encode()).split("\r\n")[:-1]
    headers = dict(line.split(": ", 1) for line in lines)
    hook = standardwebhooks.Webhook(secret)
    hook.verify(body, headers, json_parse=False)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        hook.verify(body + "x", headers, json_parse=False)
