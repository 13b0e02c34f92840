"""What a pod is told, turned into what `millrace.consuming` needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from millrace.api.delivery import OnDeadLetter
from millrace.api.pulsarconnection import AuthType
from millrace.api.subscription import Ordering
from millrace.consuming.settings import Settings, Timing, Topics
from millrace.core.backoff import Backoff
from millrace.core.shardconfig import PropertyDemand, PulsarConfig, ShardConfig
from millrace.pulsar.credentials import Auth, Credentials, Mtls, NoAuth, OAuth2, Tls, Token, from_file


def settings(config: ShardConfig, shard: int) -> Settings:
    """One shard of the subscription that the document describes."""
    topics = Topics(
        config.subscription_name,
        config.descriptor_topic,
        config.retry_descriptor_topic,
        config.dead_letter_descriptor_topic,
        config.state_topic(shard),
    )
    retry, timing = config.retry, config.timing
    return Settings(
        topics,
        shard,
        config.shard_count,
        ordered=config.ordering is Ordering.GROUP,
        block_on_dead_letter=config.on_dead_letter is OnDeadLetter.BLOCK,
        max_attempts=retry.max_attempts,
        backoff=Backoff(retry.initial_seconds, retry.max_seconds, retry.multiplier, retry.jitter),
        max_in_flight=_messages_in_flight(config),
        max_per_second=config.throttle.max_per_second,
        error_rate_threshold=config.throttle.error_rate_threshold,
        wants=wants(config.filter),
        timing=Timing(
            timing.heartbeat_seconds,
            timing.deliver_within_seconds,
            config.delivery.timeout_seconds,
            timing.drain_seconds,
        ),
    )


def _messages_in_flight(config: ShardConfig) -> int:
    """The limit is on requests; a batch is one request."""
    batch = config.delivery.batch
    return config.delivery.max_in_flight * (1 if batch is None else batch.max_messages)


def wants(demands: tuple[PropertyDemand, ...]) -> Callable[[Mapping[str, str]], bool]:
    """The filter as one function."""
    if not demands:
        return lambda _: True

    def all_hold(properties: Mapping[str, str]) -> bool:
        return all(demand.holds(properties.get(demand.property)) for demand in demands)

    return all_hold


def credentials(config: PulsarConfig) -> Credentials:
    """How to reach Pulsar; files are read again at each use, so that they rotate."""
    auth: Auth = NoAuth()
    match config.auth_type:
        case AuthType.TOKEN:
            assert config.token_file is not None
            auth = Token(from_file(config.token_file))
        case AuthType.MTLS:
            assert config.certificate_file is not None
            assert config.private_key_file is not None
            auth = Mtls(Path(config.certificate_file), Path(config.private_key_file))
        case AuthType.OAUTH2:
            assert config.credentials_file is not None
            assert config.oauth2 is not None
            file = Path(config.credentials_file)
            auth = OAuth2(
                config.oauth2.issuer_url,
                lambda: str(json.loads(file.read_text())["client_id"]),
                lambda: str(json.loads(file.read_text())["client_secret"]),
                config.oauth2.audience,
                config.oauth2.scope,
            )
        case AuthType.NONE:
            pass
    ca_file = None if config.ca_file is None else Path(config.ca_file)
    tls = Tls(ca_file, config.allow_insecure, config.validate_hostname)
    return Credentials(config.service_url, config.admin_url, auth, tls)
