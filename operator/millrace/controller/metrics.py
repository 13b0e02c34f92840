"""What the operator measures of itself, for Prometheus. Names end in the unit; labels have few values."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

RECONCILES = Counter(
    "millrace_reconciles", "Finished reconciliations.", ["kind", "outcome"], registry=REGISTRY
)
RECONCILE_SECONDS = Histogram(
    "millrace_reconcile_seconds",
    "Time from taking an object from the queue to being done with it.",
    ["kind"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
QUEUE_WAIT_SECONDS = Histogram(
    "millrace_queue_wait_seconds",
    "Time that an object waited in the queue after it was due.",
    ["kind"],
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 30, 120),
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("millrace_queue_depth", "Objects that wait for a worker.", registry=REGISTRY)
WORKERS_BUSY = Gauge("millrace_workers_busy", "Workers that reconcile an object.", registry=REGISTRY)
PULSAR_CALLS = Counter(
    "millrace_pulsar_admin_calls",
    "Requests to Pulsar's admin API.",
    ["operation", "status"],
    registry=REGISTRY,
)
PULSAR_CALL_SECONDS = Histogram(
    "millrace_pulsar_admin_call_seconds",
    "Duration of requests to Pulsar's admin API.",
    ["operation"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.5, 1, 5, 10),
    registry=REGISTRY,
)
API_CALLS = Counter(
    "millrace_api_server_calls",
    "Requests to the API server, watches aside.",
    ["verb", "kind"],
    registry=REGISTRY,
)
LEADING = Gauge("millrace_leading", "1 on the replica that leads.", registry=REGISTRY)
WATCH_MISSED = Counter(
    "millrace_watch_missed",
    "Changes that a listing showed and the watch had not.",
    ["kind"],
    registry=REGISTRY,
)


def observe_pulsar_call(method: str, operation: str, status: int, seconds: float) -> None:
    """The admin client's observer; status 0 means that no answer came."""
    del method  # the operation says it
    PULSAR_CALLS.labels(operation, str(status)).inc()
    PULSAR_CALL_SECONDS.labels(operation).observe(seconds)
