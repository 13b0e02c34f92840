"""How a Subscription delivers: the endpoint, its headers and certificates, retries, throttle, filter."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from millrace.api.meta import ATOMIC_LIST, SET, ObjectName, Wire, list_map
from millrace.api.pulsarconnection import HOST_PORT, CertificateRef, SecretKey
from millrace.api.quantities import Interval
from millrace.api.validations import Matching, Rule, validated_by

MAX_HEADERS = 32


class Method(StrEnum):
    """The HTTP method of a delivery."""

    POST = "POST"
    PUT = "PUT"


class OnDeadLetter(StrEnum):
    """What a message in the dead-letter queue means for its group."""

    BLOCK = "Block"
    SKIP = "Skip"


class SecretKeyRef(Wire):
    """One key of a Secret in the same namespace."""

    name: ObjectName
    """The Secret's name."""

    key: SecretKey
    """The key in it."""


class HeaderSource(Wire):
    """Where a header's value is."""

    secret_key_ref: SecretKeyRef
    """A key of a Secret; read again when it changes."""


# What the delivery itself says, and what would break the connection or pass for somebody else's words.
_RESERVED = (
    "(ce-|webhook-|millrace-|proxy-).*|host|content-length|content-type|transfer-encoding|connection"
    "|keep-alive|te|trailer|upgrade|expect|traceparent|tracestate"
)


class Header(Wire):
    """One request header of the user's own."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "has(self.value) != has(self.valueFrom)",
                "a header has either value or valueFrom: set one of them",
                field="value",
            ),
            Rule(
                f"!self.name.matches(r'^(?i:{_RESERVED})$')",
                "this header is set by the delivery itself (content-type, host, ce-*, webhook-*, millrace-* "
                "and the like): choose another name",
                field="name",
            ),
        )
    )

    name: Annotated[
        str,
        Field(min_length=1, max_length=128),
        Matching("[-_A-Za-z0-9]+", "must be the name of a header: letters, digits, '-' and '_'"),
    ]
    """Its name, for example Authorization. Upper and lower case are the same."""

    value: (
        Annotated[
            str,
            Field(max_length=1024),
            Matching(
                "[ -~]*", "must be of printable ASCII characters, without line breaks; encode anything else"
            ),
        ]
        | None
    ) = None
    """Its value. Put what is secret into a Secret, and name that in valueFrom."""

    value_from: HeaderSource | None = None
    """Where its value is."""


class Batch(Wire):
    """Several messages in one request, as a CloudEvents batch; each of another group."""

    max_messages: Annotated[int, Field(ge=2, le=1000)] = 100
    """How many at most."""

    max_delay: Annotated[Interval, Field(json_schema_extra={"default": "100ms"})] = Interval.parse("100ms")
    """How long a message waits for others."""


class Signing(Wire):
    """Requests are signed as Standard Webhooks says, so that the endpoint knows who sent them."""

    secret_ref: SecretKeyRef
    """The signing secret: whsec_ and base64, or several parted by spaces while it is rotated."""


class ClientCertificateRef(Wire):
    """A Secret of type kubernetes.io/tls, or one like it, in the same namespace."""

    name: ObjectName
    """The Secret's name."""

    certificate_key: SecretKey = "tls.crt"
    """The key of the certificate."""

    private_key_key: SecretKey = "tls.key"
    """The key of the private key."""


class EndpointTLS(Wire):
    """How endpoint and delivery know each other. Without a CA here, those of the system are trusted."""

    ca_secret_ref: CertificateRef | None = None
    """The CA to trust."""

    client_secret_ref: ClientCertificateRef | None = None
    """The certificate that the delivery shows."""


_SAME_HEADER = "o.name.lowerAscii() == h.name.lowerAscii()"


class Delivery(Wire):
    """The endpoint, and how requests are made. 2xx means that the message was taken."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "!has(self.tls) || self.url.startsWith('https://')",
                "tls has no effect on an http:// URL: use https://, or remove tls",
                field="tls",
            ),
            Rule(
                f"self.headers.all(h, self.headers.exists_one(o, {_SAME_HEADER}))",
                "each header may stand once, and upper and lower case are the same: remove one of them",
                field="headers",
            ),
        )
    )

    url: Annotated[
        str,
        Field(max_length=2048),
        Matching(
            f"https?://{HOST_PORT}([/?][!$-~]*)?",
            "must be http://HOST or https://HOST, with a port, path and query if need be, but without a user "
            "or password (put those into a header from a Secret) and without a fragment",
        ),
    ]
    """Where messages are sent: http:// or https://."""

    method: Method = Method.POST
    """POST or PUT."""

    headers: Annotated[
        tuple[Header, ...], Field(max_length=MAX_HEADERS, json_schema_extra=list_map("name"))
    ] = ()
    """Further request headers."""

    timeout: Annotated[Interval, Field(json_schema_extra={"default": "30s"})] = Interval.parse("30s")
    """How long one request may take. A new owner of a shard waits for it, so keep it short."""

    max_in_flight: Annotated[int, Field(ge=1, le=4096)] = 64
    """Requests of one shard at a time, each of another group."""

    batch: Batch | None = None
    """Send several messages in one request. Left out, each has its own."""

    signing: Signing | None = None
    """Sign requests. Left out, they are not."""

    tls: EndpointTLS | None = None
    """Certificates, for https:// only."""


class Retry(Wire):
    """A message that was not taken is tried again, ever less often; its group waits meanwhile."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "duration(self.initial) <= duration(self.max)",
                "retry.max must not be less than retry.initial: the pause only grows",
                field="max",
            ),
            Rule(
                "self.hardFailureCodes.all(c, c != 429 && c != 503)",
                "429 and 503 ask for a slower pace, so they are never hard failures: remove them",
                field="hardFailureCodes",
            ),
        )
    )

    initial: Annotated[Interval, Field(json_schema_extra={"default": "1s"})] = Interval.parse("1s")
    """The pause after the first failure."""

    max: Annotated[Interval, Field(json_schema_extra={"default": "5m"})] = Interval.parse("5m")
    """The longest pause."""

    multiplier: Annotated[float, Field(ge=1, le=10)] = 2
    """By how much each pause is longer than the one before."""

    jitter: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Which part of a pause is left to chance, so that groups do not come back all at once."""

    max_attempts: Annotated[int, Field(ge=1, le=100_000)] = 16
    """After so many failures the message goes to the dead-letter queue."""

    hard_failure_codes: Annotated[
        tuple[Annotated[int, Field(ge=400, le=599)], ...], Field(max_length=64, json_schema_extra=SET)
    ] = ()
    """Status codes with which a message goes to the dead-letter queue at once, for example 400 or 422."""


class DeadLetter(Wire):
    """What becomes of messages that were never taken."""

    on_dead_letter: OnDeadLetter = OnDeadLetter.BLOCK
    """Block: what follows in the group goes to the dead-letter queue as well, so that nothing overtakes.
    Skip: the group goes on without the message."""


class Throttle(Wire):
    """How fast at most, and when to slow down by itself."""

    max_per_second: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests per second, all shards together. Left out, as fast as the endpoint takes them."""

    error_rate_threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Above this part of failed requests fewer are made at a time, until it is better. 1 turns it off."""


class PropertyFilter(Wire):
    """A demand on one property of a message."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "[has(self.equals), has(self.__in__), has(self.exists)].filter(given, given).size() == 1",
                "say exactly one of equals, in and exists about a property",
                field="property",
            )
        )
    )

    property: Annotated[str, Field(min_length=1, max_length=256)]
    """The property's name."""

    equals: Annotated[str, Field(max_length=1024)] | None = None
    """It is there, and has this value."""

    in_: (
        Annotated[
            tuple[Annotated[str, Field(max_length=1024)], ...],
            Field(min_length=1, max_length=64, json_schema_extra=SET),
        ]
        | None
    ) = Field(default=None, alias="in")
    """It is there, and has one of these values."""

    exists: bool | None = None
    """true: it is there, whatever its value; false: it is not."""


class Filter(Wire):
    """Which messages are delivered: those that meet all demands."""

    properties: Annotated[
        tuple[PropertyFilter, ...], Field(min_length=1, max_length=32, json_schema_extra=ATOMIC_LIST)
    ]
    """The demands."""
