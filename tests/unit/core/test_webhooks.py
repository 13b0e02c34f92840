"""Signatures: known answers, what a secret may be, and that every byte is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.webhooks import MIN_SECRET_BYTES, InvalidSecret, Signer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of enough length").decode()
keys = st.binary(min_size=MIN_SECRET_BYTES, max_size=64)


def signature(signer: Signer, message_id: str, timestamp: int, body: bytes) -> str:
    lines = signer.headers(message_id, timestamp, body).split("\r\n")
    assert lines[0] == f"webhook-id: {message_id}"
    assert lines[1] == f"webhook-timestamp: {timestamp}"
    assert lines[3] == ""
    return lines[2].removeprefix("webhook-signature: ")


def test_the_example_of_the_specification() -> None:
    signed = signature(
        Signer.parse(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(keys, st.from_regex(r"[!-~]{1,40}", fullmatch=True), st.integers(0, 2**40), st.binary(max_size=200))
def test_signed_are_the_id_the_time_and_every_byte_of_the_body(
    key: bytes, message_id: str, timestamp: int, body: bytes
) -> None:
    signer = Signer.parse("whsec_" + base64.b64encode(key).decode())
    expected = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    assert signature(signer, message_id, timestamp, body) == "v1," + base64.b64encode(expected).decode()


def test_a_secret_is_read_with_and_without_prefix_and_padding() -> None:
    key = base64.b64encode(b"0123456789abcdef0123456789").decode()
    assert key.endswith("=")
    forms = [key, key.rstrip("="), "whsec_" + key, f"  whsec_{key}\n"]
    assert len({signature(Signer.parse(form), "i", 1, b"x") for form in forms}) == 1


def test_with_two_secrets_there_are_two_signatures_in_their_order() -> None:
    both = signature(Signer.parse(f"{SECRET}\n{OTHER}\n"), "i", 1, b"x")
    assert both.split(" ") == [signature(Signer.parse(each), "i", 1, b"x") for each in (SECRET, OTHER)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("whsec_", "0 bytes"),
        ("whsec_dG9vIHNob3J0", "9 bytes"),
        ("my plain password, which is long enough", "number 1 has 1 bytes"),
        ("my-plain-password,-which-is-long-enough", "number 1 is not base64"),
        ("whsec_!!!!MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "not base64"),
        ("whsec_é" + "A" * 40, "not base64"),
        (f"{SECRET} whsec_x", "number 2"),
    ],
)
def test_what_is_no_secret_is_refused_without_being_told(text: str, says: str) -> None:
    with pytest.raises(InvalidSecret, match=says) as caught:
        Signer.parse(text)
    assert not any(
        len(word) > 8 and word.removeprefix("whsec_") in str(caught.value) for word in text.split()
    )
