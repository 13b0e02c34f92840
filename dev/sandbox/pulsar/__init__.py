"""A real Pulsar (broker, bookie and metadata in one process) inside a sandbox's network namespace.

`distribution` fetches it, `credentials` makes its keys, tokens and certificate, `configuration` writes its
settings, and `broker` runs it. Authentication, authorisation and TLS are on; what decides over data (deletion
of inactive topics, expiry, retention) is left at Pulsar's defaults, so that a test notices when the product
relies on anything else.
"""

from sandbox.pulsar.broker import Endpoints, endpoints, kill, prepare, restart, start, stop

__all__ = ["Endpoints", "endpoints", "kill", "prepare", "restart", "start", "stop"]
