"""The settings of the sandbox's Pulsar: what the distribution ships, with a reason for every difference.

Left alone on purpose: brokerDeleteInactiveTopicsEnabled, ttlDurationDefaultInSeconds, defaultRetention* and
all quotas. The product must keep its data safe on a broker that nobody has tuned for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.layout import NODE_IP
from sandbox.pki import Pair

LOGGING = Path(__file__).with_name("log4j2.yaml")
STARTED = b"messaging service is ready"
"""What the broker logs once it serves."""

PLAIN_PORT = 6650
TLS_PORT = 6651
HTTP_PORT = 8080
HTTPS_PORT = 8443
SUPERUSERS = ("admin", "operator")

_ALWAYS: Mapping[str, str] = {
    # The embedded metadata store, chosen by the command line.
    "metadataStoreUrl": "",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # Without these the bookie takes a random port.
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "allowEphemeralPorts": "true",
    # The shipped standalone.conf does not sync: acknowledged would not mean durable.
    "journalSyncData": "true",
    # Tailing readers are woken at once instead of after 10 ms.
    "managedLedgerNewEntriesCheckDelayInMillis": "0",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    # A developer's disk is often nearly full; the bookie would turn read-only.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
    # Small caches, for a process that shares its machine with a whole cluster.
    "managedLedgerCacheSizeMB": "64",
    "dbStorage_writeCacheMaxSizeMb": "64",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": str(16 * 1024 * 1024),
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "webSocketServiceEnabled": "false",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """The files that make the broker's door a locked one."""

    secret_key: Path
    admin_token: Path
    server: Pair
    ca: Path


def trusting(trust: Trust) -> dict[str, str]:
    """The settings of a broker in a sandbox."""
    return {
        "bindAddress": "0.0.0.0",  # the whole network namespace, which has no link to the outside
        "advertisedAddress": NODE_IP,
        "brokerServicePort": str(PLAIN_PORT),
        "brokerServicePortTls": str(TLS_PORT),
        "webServicePort": str(HTTP_PORT),
        "webServicePortTls": str(HTTPS_PORT),
        "tlsCertificateFilePath": str(trust.server.certificate),
        "tlsKeyFilePath": str(trust.server.key),
        "tlsTrustCertsFilePath": str(trust.ca),
        "tlsCertRefreshCheckDurationSec": "5",
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(
            f"org.apache.pulsar.broker.authentication.AuthenticationProvider{kind}"
            for kind in ("Token", "Tls")
        ),
        "tokenSecretKey": f"file://{trust.secret_key}",
        "authorizationEnabled": "true",
        "superUserRoles": ",".join(SUPERUSERS),
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{trust.admin_token}",
    }


def untrusting() -> dict[str, str]:
    """The settings of a broker that nobody can reach: for the training run."""
    return {"bindAddress": "127.0.0.1", "advertisedAddress": "127.0.0.1"}


def render(home: Path, settings: Mapping[str, str]) -> str:
    """The shipped configuration with our values in place of its own; keys it lacks come last."""
    wanted = {**_ALWAYS, **settings}
    lines = []
    for line in (home / "conf" / "standalone.conf").read_text().splitlines():
        name = line.partition("=")[0].strip()
        if line.lstrip().startswith("#") or not name:
            continue
        lines.append(f"{name}={wanted.pop(name)}" if name in wanted else line)
    lines += [f"{name}={value}" for name, value in wanted.items()]
    return "\n".join(lines) + "\n"
