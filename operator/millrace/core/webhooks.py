"""Signatures of requests, as Standard Webhooks 1.0 has them: the endpoint can tell who sent what, and when.

Signed is `ID.TIMESTAMP.BODY` with HMAC-SHA256. With several secrets a request carries a signature of each, so
that a secret can be rotated without a moment in which the endpoint knows none of them.
"""

from __future__ import annotations

import base64
import binascii
import hmac

from millrace.core.errors import DomainError

PREFIX = "whsec_"
MIN_SECRET_BYTES = 24
"""As the specification recommends; a shorter one is likely to be something else by mistake."""


class InvalidSecret(DomainError):  # noqa: N818
    """A signing secret that is none. The message never holds the secret."""


class Signer:
    """Signs with each of its secrets."""

    __slots__ = ("_keys",)

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, text: str) -> Signer:
        """Read one secret, or several parted by white space, the newest first."""
        keys = tuple(_key(secret, number) for number, secret in enumerate(text.split(), start=1))
        if not keys:
            raise InvalidSecret(f"the signing secret is empty; expected {PREFIX} and base64")
        return cls(keys)

    def headers(self, message_id: str, timestamp: int, body: bytes) -> str:
        """The three header lines. `message_id` is written as it is: visible ASCII without a dot is best."""
        content = f"{message_id}.{timestamp}.".encode() + body
        signatures = " ".join(
            "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in self._keys
        )
        stamp = f"webhook-id: {message_id}\r\nwebhook-timestamp: {timestamp}\r\n"
        return f"{stamp}webhook-signature: {signatures}\r\n"


def _key(secret: str, number: int) -> bytes:
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret(
            f"signing secret number {number} is not base64; expected {PREFIX} and the base64 of "
            f"{MIN_SECRET_BYTES} random bytes or more"
        ) from None
    if len(key) < MIN_SECRET_BYTES:
        raise InvalidSecret(
            f"signing secret number {number} has {len(key)} bytes; at least {MIN_SECRET_BYTES} are needed"
        )
    return key
