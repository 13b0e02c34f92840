"""What the pods of a Subscription are told: one document, written by the controller and read by every shard.

It names files, never secrets: credentials and header values are mounted beside it and read again when they
change. A new document means new pods (the Deployment carries its digest), so that no pod ever runs with half
of one. Whoever reads ignores fields that are not known, and takes the default of one that is missing:
version N reads N-1 and tolerates N+1.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from millrace.api.delivery import Method, OnDeadLetter
from millrace.api.pulsarconnection import AuthType
from millrace.api.subscription import Ordering
from millrace.core.documents import DocumentError, from_document, to_document
from millrace.core.errors import DomainError

__all__ = [
    "CONFIG_FILE",
    "ENDPOINT_DIRECTORY",
    "FORMAT_VERSION",
    "HEADERS_DIRECTORY",
    "OLDEST_READER",
    "PULSAR_DIRECTORY",
    "BatchConfig",
    "DeliveryConfig",
    "HeaderConfig",
    "OAuth2Config",
    "PropertyDemand",
    "PulsarConfig",
    "RetryConfig",
    "ShardConfig",
    "ShardConfigError",
    "ThrottleConfig",
    "Timing",
]

FORMAT_VERSION = 1
OLDEST_READER = 1
"""The oldest reader that understands what this version writes; a reader refuses what is above its own."""

CONFIG_FILE = "/etc/millrace/config/shard.json"
PULSAR_DIRECTORY = "/etc/millrace/pulsar"
HEADERS_DIRECTORY = "/etc/millrace/headers"
ENDPOINT_DIRECTORY = "/etc/millrace/endpoint"


class ShardConfigError(DomainError):
    """The document is not one, or was written for a newer reader."""


@dataclass(frozen=True, slots=True)
class OAuth2Config:
    """Where tokens are asked for."""

    issuer_url: str
    audience: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class PulsarConfig:
    """How a pod reaches Pulsar. Which of the files is there depends on `auth_type`."""

    service_url: str
    admin_url: str
    auth_type: AuthType = AuthType.NONE
    token_file: str | None = None
    certificate_file: str | None = None
    private_key_file: str | None = None
    credentials_file: str | None = None
    """OAuth2: a JSON document with client_id and client_secret."""
    oauth2: OAuth2Config | None = None
    ca_file: str | None = None
    allow_insecure: bool = False
    validate_hostname: bool = True


@dataclass(frozen=True, slots=True)
class HeaderConfig:
    """A request header with a value that is no secret."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """Several messages in one request."""

    max_messages: int
    max_delay_seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """The endpoint, and how requests are made."""

    url: str
    method: Method = Method.POST
    timeout_seconds: float = 30.0
    max_in_flight: int = 64
    """Requests of one shard at a time."""
    headers: tuple[HeaderConfig, ...] = ()
    headers_directory: str | None = None
    """Each file in it is a header of that name; its content, without the line's end, is the value."""
    batch: BatchConfig | None = None
    signing_secret_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    private_key_file: str | None = None


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """As `millrace.core.backoff.Backoff` has it, and when to give up."""

    initial_seconds: float = 1.0
    max_seconds: float = 300.0
    multiplier: float = 2.0
    jitter: float = 0.2
    max_attempts: int = 16
    hard_failure_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ThrottleConfig:
    """How fast at most. `max_per_second` is this shard's part of what all may do together."""

    max_per_second: float | None = None
    error_rate_threshold: float = 0.5


@dataclass(frozen=True, slots=True)
class PropertyDemand:
    """A message is delivered only if its property is one of `values`, or is there, or is not there."""

    property: str
    values: tuple[str, ...] | None = None
    """None: whatever the value; `present` says whether there has to be one."""
    present: bool = True

    def holds(self, found: str | None) -> bool:
        """Whether a message with this property (None: without it) is delivered."""
        if self.values is not None:
            return found in self.values
        return (found is not None) is self.present


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks of ownership (DESIGN 5.2 and 5.6); all in seconds."""

    heartbeat_seconds: float = 1.0
    deliver_within_seconds: float = 5.0
    """D: a delivery begins only this soon after the last acknowledged heartbeat."""
    lease_seconds: float = 10.0
    """A Lease that was not renewed for so long, by the observer's own clock, may be claimed."""
    renew_seconds: float = 2.0
    drain_seconds: float = 30.0
    """After SIGTERM: how long requests that are under way may take."""


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """One generation of shards. Which of them a pod is, it learns from the Lease that it claims."""

    cluster_id: str
    namespace: str
    name: str
    generation: int
    shard_count: int
    topic: str
    """The CompositeTopic, as NAMESPACE/NAME."""
    subscription_name: str
    """Of the cursors on the main topic, the retry queue and the dead-letter queue."""
    descriptor_topic: str
    retry_descriptor_topic: str
    dead_letter_descriptor_topic: str
    state_topic_prefix: str
    """Followed by the shard's number it is the full name of the shard's state table."""
    lease_prefix: str
    """Followed by the shard's number it is the name of the shard's Lease."""
    pulsar: PulsarConfig
    delivery: DeliveryConfig
    ordering: Ordering = Ordering.GROUP
    retry: RetryConfig = field(default_factory=RetryConfig)
    on_dead_letter: OnDeadLetter = OnDeadLetter.BLOCK
    throttle: ThrottleConfig = field(default_factory=ThrottleConfig)
    filter: tuple[PropertyDemand, ...] = ()
    """A message is delivered if all of them hold."""
    timing: Timing = field(default_factory=Timing)

    def state_topic(self, shard: int) -> str:
        """The full name of a shard's state table."""
        return f"{self.state_topic_prefix}{shard}"

    def lease_name(self, shard: int) -> str:
        """The name of a shard's Lease, in the namespace of the Subscription."""
        return f"{self.lease_prefix}{shard}"

    def to_json(self) -> str:
        """Serialise; stable, so that equal configurations are equal documents."""
        document: dict[str, Any] = {"version": FORMAT_VERSION, "oldestReader": OLDEST_READER}
        return json.dumps(document | to_document(self), indent=1)

    @property
    def digest(self) -> str:
        """What tells one document from another; pods are replaced when it changes."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardConfig:
        """Read any version that says this reader may; the error says where it is wrong."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ShardConfigError(f"not a shard configuration: {error}") from error
        if not isinstance(document, dict):
            raise ShardConfigError("not a shard configuration: it is no JSON object")
        oldest = document.get("oldestReader")
        if type(oldest) is not int:
            raise ShardConfigError("not a shard configuration: it does not say who can read it")
        if oldest > FORMAT_VERSION:
            raise ShardConfigError(
                f"the shard configuration needs a reader of version {oldest} or newer; this one is "
                f"{FORMAT_VERSION}: run the image of the operator that wrote it"
            )
        try:
            return from_document(cls, document)
        except DocumentError as error:
            raise ShardConfigError(f"the shard configuration cannot be read: {error}") from error
