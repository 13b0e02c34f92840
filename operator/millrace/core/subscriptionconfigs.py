"""From a Subscription and its PulsarConnection to what its pods are told, and which Secrets they mount."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.api.delivery import Delivery, PropertyFilter
from millrace.api.pulsarconnection import AuthType, PulsarConnectionSpec
from millrace.api.subscription import Subscription
from millrace.core.shardconfig import (
    ENDPOINT_DIRECTORY,
    HEADERS_DIRECTORY,
    PULSAR_DIRECTORY,
    BatchConfig,
    DeliveryConfig,
    HeaderConfig,
    OAuth2Config,
    PropertyDemand,
    PulsarConfig,
    RetryConfig,
    ShardConfig,
    ThrottleConfig,
    Timing,
)
from millrace.core.subscriptionactions import Queue, Wanted

LONGEST_DRAIN = 60.0
"""A node that is drained does not wait for ever; what is cut off is delivered again."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """One key of a Secret or ConfigMap, as a file in a pod."""

    name: str
    key: str
    directory: str
    file: str
    config_map: bool = False


def mounts(subscription: Subscription, connection: PulsarConnectionSpec) -> tuple[Mounted, ...]:
    """Every file that the pods read beside their configuration."""
    return (*_pulsar_mounts(connection), *_header_mounts(subscription), *_endpoint_mounts(subscription))


def _pulsar_mounts(connection: PulsarConnectionSpec) -> tuple[Mounted, ...]:
    found = []
    reference = connection.client_secret_ref
    if reference is not None:
        files = {
            AuthType.NONE: {},
            AuthType.TOKEN: {reference.token_key: "token"},
            AuthType.MTLS: {reference.certificate_key: "tls.crt", reference.private_key_key: "tls.key"},
            AuthType.OAUTH2: {reference.credentials_key: "credentials.json"},
        }[connection.auth.type]
        found += [Mounted(reference.name, key, PULSAR_DIRECTORY, file) for key, file in files.items()]
    if connection.tls is not None and connection.tls.ca_secret_ref is not None:
        where = connection.tls.ca_secret_ref
        found.append(Mounted(where.name, where.key, PULSAR_DIRECTORY, "ca.crt"))
    elif connection.tls is not None and connection.tls.ca_config_map_ref is not None:
        where = connection.tls.ca_config_map_ref
        found.append(Mounted(where.name, where.key, PULSAR_DIRECTORY, "ca.crt", config_map=True))
    return tuple(found)


def _header_mounts(subscription: Subscription) -> tuple[Mounted, ...]:
    return tuple(
        Mounted(
            header.value_from.secret_key_ref.name,
            header.value_from.secret_key_ref.key,
            HEADERS_DIRECTORY,
            header.name,
        )
        for header in subscription.spec.delivery.headers
        if header.value_from is not None
    )


def _endpoint_mounts(subscription: Subscription) -> tuple[Mounted, ...]:
    delivery, found = subscription.spec.delivery, []
    if delivery.signing is not None:
        where = delivery.signing.secret_ref
        found.append(Mounted(where.name, where.key, ENDPOINT_DIRECTORY, "signing"))
    if delivery.tls is not None and delivery.tls.ca_secret_ref is not None:
        authority = delivery.tls.ca_secret_ref
        found.append(Mounted(authority.name, authority.key, ENDPOINT_DIRECTORY, "ca.crt"))
    if delivery.tls is not None and delivery.tls.client_secret_ref is not None:
        own = delivery.tls.client_secret_ref
        found.append(Mounted(own.name, own.certificate_key, ENDPOINT_DIRECTORY, "tls.crt"))
        found.append(Mounted(own.name, own.private_key_key, ENDPOINT_DIRECTORY, "tls.key"))
    return tuple(found)


def shard_config(
    subscription: Subscription, connection: PulsarConnectionSpec, wanted: Wanted, shard_count: int
) -> ShardConfig:
    """What the pods of one generation are told."""
    spec, meta = subscription.spec, subscription.metadata
    throttle, retry = spec.throttle, spec.retry
    files = {(mount.directory, mount.file) for mount in mounts(subscription, connection)}
    return ShardConfig(
        cluster_id=wanted.owner.cluster,
        namespace=meta.namespace,
        name=meta.name,
        generation=wanted.generation,
        shard_count=shard_count,
        topic=f"{spec.topic_ref.namespace or meta.namespace}/{spec.topic_ref.name}",
        subscription_name=wanted.cursor,
        descriptor_topic=wanted.descriptor_topic,
        retry_descriptor_topic=wanted.queue_descriptor(Queue.RETRY),
        dead_letter_descriptor_topic=wanted.queue_descriptor(Queue.DEAD_LETTER),
        state_topic_prefix=wanted.state_topic(0).removesuffix("0"),
        lease_prefix=lease_prefix(meta.name, wanted.generation),
        pulsar=_pulsar(connection, files),
        delivery=_delivery(spec.delivery, files),
        ordering=spec.ordering,
        retry=RetryConfig(
            initial_seconds=retry.initial.seconds,
            max_seconds=retry.max.seconds,
            multiplier=retry.multiplier,
            jitter=retry.jitter,
            max_attempts=retry.max_attempts,
            hard_failure_codes=tuple(sorted(retry.hard_failure_codes)),
        ),
        on_dead_letter=spec.dead_letter.on_dead_letter,
        throttle=ThrottleConfig(
            max_per_second=None if throttle.max_per_second is None else throttle.max_per_second / shard_count,
            error_rate_threshold=throttle.error_rate_threshold,
        ),
        filter=() if spec.filter is None else tuple(map(_demand, spec.filter.properties)),
        timing=Timing(drain_seconds=min(spec.delivery.timeout.seconds + 5, LONGEST_DRAIN)),
    )


def lease_prefix(name: str, generation: int) -> str:
    """The Lease of a shard is called this and its number."""
    return f"{name}-{generation}-"


def _demand(demand: PropertyFilter) -> PropertyDemand:
    if demand.equals is not None:
        return PropertyDemand(demand.property, (demand.equals,))
    if demand.in_ is not None:
        return PropertyDemand(demand.property, tuple(sorted(demand.in_)))
    return PropertyDemand(demand.property, present=demand.exists is not False)


def _pulsar(connection: PulsarConnectionSpec, files: set[tuple[str, str]]) -> PulsarConfig:
    oauth2, tls = connection.auth.oauth2, connection.tls

    def path(file: str) -> str | None:
        return f"{PULSAR_DIRECTORY}/{file}" if (PULSAR_DIRECTORY, file) in files else None

    return PulsarConfig(
        service_url=connection.service_url,
        admin_url=connection.admin_url,
        auth_type=connection.auth.type,
        token_file=path("token"),
        certificate_file=path("tls.crt"),
        private_key_file=path("tls.key"),
        credentials_file=path("credentials.json"),
        oauth2=None
        if oauth2 is None
        else OAuth2Config(oauth2.issuer_url, oauth2.audience, oauth2.scope or ""),
        ca_file=path("ca.crt"),
        allow_insecure=tls is not None and tls.allow_insecure,
        validate_hostname=tls is None or tls.validate_hostname,
    )


def _delivery(delivery: Delivery, files: set[tuple[str, str]]) -> DeliveryConfig:
    def path(file: str) -> str | None:
        return f"{ENDPOINT_DIRECTORY}/{file}" if (ENDPOINT_DIRECTORY, file) in files else None

    literal = [header for header in delivery.headers if header.value is not None]
    batch = delivery.batch
    return DeliveryConfig(
        url=delivery.url,
        method=delivery.method,
        timeout_seconds=delivery.timeout.seconds,
        max_in_flight=delivery.max_in_flight,
        headers=tuple(HeaderConfig(header.name, header.value or "") for header in literal),
        headers_directory=HEADERS_DIRECTORY if len(literal) < len(delivery.headers) else None,
        batch=None if batch is None else BatchConfig(batch.max_messages, batch.max_delay.seconds),
        signing_secret_file=path("signing"),
        ca_file=path("ca.crt"),
        certificate_file=path("tls.crt"),
        private_key_file=path("tls.key"),
    )
