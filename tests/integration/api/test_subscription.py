"""Each rule of Subscription, refused and allowed by a real API server; and its scale subresource."""

from __future__ import annotations

import json
import subprocess
from typing import Any, NamedTuple

import pytest

from millrace.api import GROUP, VERSION
from millrace.api.subscription import (
    Lag,
    ShardAssignment,
    ShardStatus,
    Subscription,
    SubscriptionStatus,
)
from tests.integration.api.apiserver import SUBSCRIPTION, ApiServer, Manifest, RefusedError

pytestmark = pytest.mark.integration

URL = "https://billing.example/events"


def spec(delivery: Manifest | None = None, **fields: Any) -> Manifest:
    return {"topicRef": {"name": "orders"}, "delivery": {"url": URL} | (delivery or {})} | fields


def header(name: str = "x-tenant", **fields: Any) -> Manifest:
    return spec({"headers": [{"name": name} | (fields or {"value": "shop"})]})


def template(**fields: Any) -> Manifest:
    return spec(podTemplate=fields)


def demand(**fields: Any) -> Manifest:
    return spec(filter={"properties": [{"property": "country"} | fields]})


class Refused(NamedTuple):
    """A change, and the field and sentence with which it is refused."""

    name: str
    old: Manifest
    new: Manifest
    field: str
    message: str


class Allowed(NamedTuple):
    """A change that goes through."""

    name: str
    old: Manifest
    new: Manifest


class Invalid(NamedTuple):
    """An object that cannot be created."""

    name: str
    spec: Manifest
    field: str
    message: str


TOPIC = "topicRef never changes, for the cursors are on that topic; create another Subscription instead"
START = "startFrom never changes, for it has taken effect; create another Subscription to begin elsewhere"
ORDERING = (
    "ordering never changes, for messages that are parked already follow it; "
    "create another Subscription instead"
)
PARTITIONS = (
    "{} never changes, for the partition count of a topic cannot; create another Subscription instead"
)
ENDPOINT = (
    "must be http://HOST or https://HOST, with a port, path and query if need be, but without a user "
    "or password (put those into a header from a Secret) and without a fragment"
)
INTERVAL = "must be an interval: write up to six digits and one of ms, s, m, h (for example 30s)"
RESERVED = (
    "this header is set by the delivery itself (content-type, host, ce-*, webhook-*, millrace-* "
    "and the like): choose another name"
)
ONE_VALUE = "a header has either value or valueFrom: set one of them"
ONE_DEMAND = "say exactly one of equals, in and exists about a property"
PRINTABLE = "must be of printable ASCII characters, without line breaks; encode anything else"
SOURCE = {"valueFrom": {"secretKeyRef": {"name": "billing", "key": "token"}}}

REFUSED_CHANGES = [
    Refused("another topic", spec(), spec(topicRef={"name": "payments"}), "spec.topicRef", TOPIC),
    Refused(
        "a topic's namespace set later",
        spec(),
        spec(topicRef={"name": "orders", "namespace": "shop"}),
        "spec.topicRef",
        TOPIC,
    ),
    Refused("another start", spec(), spec(startFrom={"type": "Latest"}), "spec.startFrom", START),
    Refused("the start unset", spec(startFrom={"type": "Latest"}), spec(), "spec.startFrom", START),
    Refused(
        "another moment",
        spec(startFrom={"type": "Time", "time": "2026-01-02T03:04:05Z"}),
        spec(startFrom={"type": "Time", "time": "2026-01-02T03:04:06Z"}),
        "spec.startFrom",
        START,
    ),
    Refused("no order any more", spec(), spec(ordering="None"), "spec.ordering", ORDERING),
    Refused("the ordering unset", spec(ordering="None"), spec(), "spec.ordering", ORDERING),
    *(
        Refused(what, spec(**old), spec(**new), f"spec.{field}", PARTITIONS.format(field))
        for field in ("retryPartitions", "deadLetterPartitions")
        for what, old, new in (
            (f"other {field}", {field: 4}, {field: 8}),
            (f"{field} unset", {field: 4}, {}),
            (f"{field} set later", {}, {field: 4}),
        )
    ),
]

ALLOWED_CHANGES = [
    Allowed("nothing", spec(), spec()),
    Allowed("more shards", spec(), spec(shardCount=12)),
    Allowed("suspended", spec(shardCount=4), spec(shardCount=0)),
    Allowed("unevenness allowed", spec(), spec(allowUneven=True)),
    Allowed("another endpoint", spec(), spec({"url": "http://billing:8080/v2?a=b%20c&d=@x"})),
    Allowed("a header added", spec(), header()),
    Allowed("a header from a Secret", header(), header(**SOURCE)),
    Allowed("batches", spec(), spec({"batch": {}})),
    Allowed("signatures", spec(), spec({"signing": {"secretRef": {"name": "s", "key": "k"}}})),
    Allowed("a private CA", spec(), spec({"tls": {"caSecretRef": {"name": "ca"}}})),
    Allowed("retries", spec(), spec(retry={"initial": "250ms", "max": "1h", "hardFailureCodes": [400, 422]})),
    Allowed("messages skipped", spec(), spec(deadLetter={"onDeadLetter": "Skip"})),
    Allowed("a rate", spec(), spec(throttle={"maxPerSecond": 50})),
    Allowed("a filter", spec(), demand(equals="at")),
    Allowed("a filter removed", demand(**{"in": ["at", "ch"]}), spec()),
    Allowed("no standby", spec(), spec(standby=0)),
    Allowed("the deletion policy", spec(), spec(deletionPolicy="Delete")),
    Allowed(
        "pods of another kind",
        spec(),
        template(
            resources={"requests": {"cpu": 1, "memory": "256Mi"}},
            nodeSelector={"disk": "ssd"},
            tolerations=[{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            env=[{"name": "TZ", "value": "UTC"}],
            labels={"team": "billing"},
            annotations={"example.org/a": "b"},
        ),
    ),
]

INVALID = [
    *(
        Invalid(f"the URL {url}", spec({"url": url}), "spec.delivery.url", ENDPOINT)
        for url in (
            "billing.example/events",
            "ftp://billing.example/",
            "https://user:secret@billing.example/",
            "https://user@billing.example/",
            "https://billing.example/a b",
            "https://billing.example/a\nb",
            "https://billing.example/#a",
            "https://billing.example/é",
            "https:///events",
            "",
        )
    ),
    Invalid("no endpoint", {"topicRef": {"name": "orders"}}, "spec.delivery", "Required value"),
    Invalid("no topic", {"delivery": {"url": URL}}, "spec.topicRef", "Required value"),
    Invalid(
        "another method", spec({"method": "GET"}), "spec.delivery.method", 'supported values: "POST", "PUT"'
    ),
    *(
        Invalid(f"the header {name}", header(name), "spec.delivery.headers[0].name", RESERVED)
        for name in (
            "Host", "content-type", "Content-Length", "Transfer-Encoding", "ce-id", "CE-Source", "webhook-id",
            "millrace-epoch", "traceparent", "Proxy-Authorization", "connection",
        )
    ),
    *(
        Invalid(
            f"the header {name!r}",
            header(name),
            "spec.delivery.headers[0].name",
            "must be the name of a header: letters, digits, '-' and '_'",
        )
        for name in ("x tenant", "x:tenant", "x-tenant\r\nx-evil", "..", "é")
    ),
    *(
        Invalid(f"the value {value!r}", header(value=value), "spec.delivery.headers[0].value", PRINTABLE)
        for value in ("a\r\nx-evil: b", "a\nb", "a\tb", "é")
    ),
    Invalid("a header without a value", header(value=None), "spec.delivery.headers[0].value", ONE_VALUE),
    Invalid(
        "a header with two values", header(value="a", **SOURCE), "spec.delivery.headers[0].value", ONE_VALUE
    ),
    Invalid(
        "a header twice",
        spec({"headers": [{"name": "x-a", "value": "1"}, {"name": "X-A", "value": "2"}]}),
        "spec.delivery.headers",
        "each header may stand once, and upper and lower case are the same: remove one of them",
    ),
    Invalid(
        "certificates without TLS",
        spec({"url": "http://billing", "tls": {"caSecretRef": {"name": "ca"}}}),
        "spec.delivery.tls",
        "tls has no effect on an http:// URL: use https://, or remove tls",
    ),
    *(
        Invalid(f"a time-out of {value!r}", spec({"timeout": value}), "spec.delivery.timeout", INTERVAL)
        for value in ("0s", "-1", "30", "1.5s", "1d", "")
    ),
    Invalid("a batch of one", spec({"batch": {"maxMessages": 1}}), "spec.delivery.batch.maxMessages", "to 2"),
    Invalid("no requests", spec({"maxInFlight": 0}), "spec.delivery.maxInFlight", "to 1"),
    Invalid(
        "pauses that shrink",
        spec(retry={"initial": "2m", "max": "90s"}),
        "spec.retry.max",
        "retry.max must not be less than retry.initial: the pause only grows",
    ),
    Invalid("a multiplier below 1", spec(retry={"multiplier": 0.5}), "spec.retry.multiplier", "to 1"),
    Invalid("more jitter than there is", spec(retry={"jitter": 1.5}), "spec.retry.jitter", "to 1"),
    Invalid("no attempt", spec(retry={"maxAttempts": 0}), "spec.retry.maxAttempts", "to 1"),
    *(
        Invalid(
            f"{code} as a hard failure",
            spec(retry={"hardFailureCodes": [code]}),
            "spec.retry.hardFailureCodes[0]",
            f"should be {limit}",
        )
        for code, limit in ((200, "greater than or equal to 400"), (600, "less than or equal to 599"))
    ),
    *(
        Invalid(
            f"{code} as a hard failure",
            spec(retry={"hardFailureCodes": [400, code]}),
            "spec.retry.hardFailureCodes",
            "429 and 503 ask for a slower pace, so they are never hard failures: remove them",
        )
        for code in (429, 503)
    ),
    Invalid(
        "a threshold of nothing",
        spec(throttle={"errorRateThreshold": 0}),
        "spec.throttle.errorRateThreshold",
        "should be greater than 0",
    ),
    Invalid("a rate of nothing", spec(throttle={"maxPerSecond": 0}), "spec.throttle.maxPerSecond", "to 1"),
    Invalid(
        "a time without its type",
        spec(startFrom={"time": "2026-01-02T03:04:05Z"}),
        "spec.startFrom.time",
        "time belongs to type Time: set both, or neither",
    ),
    Invalid(
        "the type Time without one",
        spec(startFrom={"type": "Time"}),
        "spec.startFrom.time",
        "time belongs to type Time: set both, or neither",
    ),
    Invalid("fewer shards than none", spec(shardCount=-1), "spec.shardCount", "to 0"),
    Invalid("too many shards", spec(shardCount=4097), "spec.shardCount", "to 4096"),
    Invalid("no demand", demand(), "spec.filter.properties[0].property", ONE_DEMAND),
    Invalid(
        "two demands at once",
        demand(equals="at", exists=True),
        "spec.filter.properties[0].property",
        ONE_DEMAND,
    ),
    Invalid("an empty filter", spec(filter={"properties": []}), "spec.filter.properties", "at least 1 items"),
    Invalid(
        "a label of the operator",
        template(labels={"millrace.dev/shard": "1"}),
        "spec.podTemplate.labels",
        "labels under millrace.dev/ and app.kubernetes.io/ are the operator's, which finds its pods "
        "by them: use other ones",
    ),
    Invalid(
        "a variable of the operator",
        template(env=[{"name": "MILLRACE_CONFIG", "value": "x"}]),
        "spec.podTemplate.env",
        "variables that begin with MILLRACE_ are the operator's: use other ones",
    ),
    Invalid(
        "a variable that cannot be one",
        template(env=[{"name": "1ST", "value": "x"}]),
        "spec.podTemplate.env[0].name",
        "must be the name of a variable: letters, digits and '_', no digit first",
    ),
]  # fmt: skip


def by_name(case: Refused | Allowed | Invalid) -> str:
    return case.name.replace(" ", "-")


@pytest.mark.parametrize("case", REFUSED_CHANGES, ids=by_name)
def test_a_change_is_refused_with_a_sentence_that_says_what_to_do(
    api_server: ApiServer, case: Refused
) -> None:
    created = api_server.create(SUBSCRIPTION, case.old)

    with pytest.raises(RefusedError) as refused:
        api_server.replace(SUBSCRIPTION, created, case.new)

    assert refused.value.says(case.field, case.message), refused.value.causes
    assert api_server.get(SUBSCRIPTION, created["metadata"]["name"])["spec"] == created["spec"]


@pytest.mark.parametrize("case", ALLOWED_CHANGES, ids=by_name)
def test_a_change_is_allowed_and_kept(api_server: ApiServer, case: Allowed) -> None:
    created = api_server.create(SUBSCRIPTION, case.old)

    replaced = api_server.replace(SUBSCRIPTION, created, case.new)

    assert _holds(replaced["spec"], case.new)
    assert Subscription.parse(replaced).spec.delivery.url == case.new["delivery"]["url"]


def _holds(found: Any, wanted: Any) -> bool:
    """Whether all that was written is there; defaults may stand beside it."""
    if isinstance(wanted, dict):
        return all(key in found and _holds(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_holds, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("case", INVALID, ids=by_name)
def test_an_object_is_refused_with_a_sentence_that_says_what_to_do(
    api_server: ApiServer, case: Invalid
) -> None:
    with pytest.raises(RefusedError) as refused:
        api_server.create(SUBSCRIPTION, case.spec)

    assert refused.value.says(case.field, case.message), refused.value.causes


def test_a_name_that_is_too_long_for_pods_is_refused(api_server: ApiServer) -> None:
    api_server.create(SUBSCRIPTION, spec(), name="a" * 52)

    with pytest.raises(RefusedError, match="the name of a Subscription has at most 52 characters"):
        api_server.create(SUBSCRIPTION, spec(), name="a" * 53)


def test_defaults_are_written_into_the_object(api_server: ApiServer) -> None:
    created = api_server.create(SUBSCRIPTION, spec())

    assert created["spec"] == {
        "topicRef": {"name": "orders"},
        "shardCount": 1,
        "allowUneven": False,
        "ordering": "Group",
        "delivery": {"url": URL, "method": "POST", "headers": [], "timeout": "30s", "maxInFlight": 64},
        "retry": {
            "initial": "1s",
            "max": "5m",
            "multiplier": 2.0,
            "jitter": 0.2,
            "maxAttempts": 16,
            "hardFailureCodes": [],
        },
        "deadLetter": {"onDeadLetter": "Block"},
        "throttle": {"errorRateThreshold": 0.5},
        "startFrom": {"type": "Earliest"},
        "standby": 1,
        "deletionPolicy": "Retain",
        "podTemplate": {"nodeSelector": {}, "tolerations": [], "env": [], "annotations": {}, "labels": {}},
    }


def test_the_defaults_of_the_schema_are_those_of_the_model(api_server: ApiServer) -> None:
    created = api_server.create(SUBSCRIPTION, spec())

    bare = Subscription.parse({"metadata": created["metadata"], "spec": spec()})

    assert Subscription.parse(created).spec == bare.spec


def scale(api_server: ApiServer, name: str) -> Manifest:
    found: Manifest = api_server.custom.get_namespaced_custom_object_scale(
        GROUP, VERSION, api_server.namespace, SUBSCRIPTION.plural, name
    )
    return found


def test_kubectl_scale_sets_the_shard_count(api_server: ApiServer) -> None:
    name = api_server.create(SUBSCRIPTION, spec())["metadata"]["name"]

    subprocess.run(
        ["kubectl", "scale", "msub", name, "-n", api_server.namespace, "--replicas=6"],
        check=True,
        capture_output=True,
    )

    assert api_server.get(SUBSCRIPTION, name)["spec"]["shardCount"] == 6


def test_an_autoscaler_finds_the_count_and_the_selector(api_server: ApiServer) -> None:
    name = api_server.create(SUBSCRIPTION, spec(shardCount=5))["metadata"]["name"]
    status = SubscriptionStatus(effective_shard_count=6, replicas=6, selector="millrace.dev/subscription=a")

    api_server.write_status(SUBSCRIPTION, name, status.to_wire())
    found = scale(api_server, name)

    assert found["spec"] == {"replicas": 5}
    assert found["status"] == {"replicas": 6, "selector": "millrace.dev/subscription=a"}


def test_a_scale_below_none_is_refused(api_server: ApiServer) -> None:
    name = api_server.create(SUBSCRIPTION, spec())["metadata"]["name"]

    outcome = subprocess.run(
        ["kubectl", "patch", "msub", name, "-n", api_server.namespace, "--subresource=scale",
         "--type=merge", "-p", '{"spec":{"replicas":-1}}'],
        check=False, capture_output=True, text=True,
    )  # fmt: skip

    assert outcome.returncode != 0
    assert (
        "should be a non-negative integer" in outcome.stderr or "greater than or equal to 0" in outcome.stderr
    )
    assert api_server.get(SUBSCRIPTION, name)["spec"]["shardCount"] == 1


def test_a_status_that_the_models_write_is_kept_whole(api_server: ApiServer) -> None:
    created = api_server.create(SUBSCRIPTION, spec())
    status = SubscriptionStatus(
        observed_generation=1,
        cluster_id="c",
        subscription_name="millrace.c.shop.billing",
        effective_shard_count=2,
        shard_generation=1,
        replicas=2,
        selector="a=b",
        retry_descriptor_generation=1,
        dead_letter_descriptor_generation=2,
        owned_shards=1,
        shards=(
            ShardStatus(
                id=0,
                owner="billing-shards-0-abc",
                epoch=7,
                assignments=(
                    ShardAssignment(topic_name="persistent://a/b/c", storage_topic_index=0, partitions="0-5"),
                ),
            ),
            ShardStatus(id=1),
        ),
        lag=Lag(main=9_000_000_000, retry=1, dead_letter=2, observed_at="2026-01-02T03:04:05Z"),
        blocked_groups=1,
        dead_lettered_groups=2,
    )

    written = api_server.write_status(SUBSCRIPTION, created["metadata"]["name"], status.to_wire())

    assert written["status"] == status.to_wire()
    assert Subscription.parse(written).status == status


def test_the_columns_are_filled(api_server: ApiServer) -> None:
    name = api_server.create(SUBSCRIPTION, spec())["metadata"]["name"]
    status = SubscriptionStatus(
        effective_shard_count=4, owned_shards=3, lag=Lag(main=12, retry=3, dead_letter=1), blocked_groups=2
    )

    api_server.write_status(SUBSCRIPTION, name, status.to_wire())
    shown = json.loads(
        subprocess.run(
            ["kubectl", "get", "--raw",
             f"/apis/{GROUP}/{VERSION}/namespaces/{api_server.namespace}/subscriptions/{name}"],
            check=True, capture_output=True, text=True,
        ).stdout
    )  # fmt: skip
    row = subprocess.run(
        ["kubectl", "get", "msub", name, "-n", api_server.namespace, "--no-headers"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip

    assert shown["status"]["ownedShards"] == 3
    assert row[:7] == [name, "orders", "4", "3", "12", "3", "1"]


def test_the_largest_object_is_within_the_cost_budget_also_when_it_changes(api_server: ApiServer) -> None:
    texts = {f"{i:03}".ljust(63, "x"): "v" * 1024 for i in range(32)}
    largest = spec(
        {
            "url": "https://h/".ljust(2048, "x"),
            "headers": [{"name": f"{i:03}".ljust(128, "x"), "value": "v" * 1024} for i in range(32)],
        },
        retry={"hardFailureCodes": [code for code in range(400, 466) if code != 429][:64]},
        filter={
            "properties": [
                {"property": "p" * 256, "in": [f"{i:03}".ljust(256, "x") for i in range(64)]}
                for _ in range(32)
            ]
        },
        podTemplate={
            "labels": texts,
            "annotations": texts,
            "env": [{"name": f"V{i:03}".ljust(256, "X"), "value": ""} for i in range(64)],
        },
    )  # fmt: skip

    created = api_server.create(SUBSCRIPTION, largest)
    replaced = api_server.replace(SUBSCRIPTION, created, largest | {"shardCount": 3})

    assert replaced["spec"]["shardCount"] == 3
