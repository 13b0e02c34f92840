"""What the pods of a Subscription are told, and the objects that are made for them."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.api.pulsarconnection import AuthType, PulsarConnectionSpec
from millrace.api.subscription import Subscription
from millrace.core.shardconfig import BatchConfig, HeaderConfig, OAuth2Config, PropertyDemand, ShardConfig
from millrace.core.subscriptionconfigs import Mounted, mounts, shard_config
from millrace.core.subscriptionobjects import Manifest, Platform, manifests, selector_text
from tests.unit.core.subscriptionmodel import wanted

PULSAR = {
    "serviceUrl": "pulsar+ssl://pulsar:6651",
    "adminUrl": "https://pulsar:8443",
    "pulsarNamespaces": ["acme/shop"],
    "auth": {"type": "Token"},
    "adminSecretRef": {"name": "pulsar-admin"},
    "clientSecretRef": {"name": "pulsar-client", "tokenKey": "jwt"},
    "tls": {"caConfigMapRef": {"name": "pulsar-ca"}},
}
FULL = {
    "delivery": {
        "url": "https://billing.example/events",
        "timeout": "2500ms",
        "headers": [
            {"name": "x-tenant", "value": "shop"},
            {"name": "Authorization", "valueFrom": {"secretKeyRef": {"name": "endpoint", "key": "bearer"}}},
        ],
        "batch": {"maxMessages": 10, "maxDelay": "50ms"},
        "signing": {"secretRef": {"name": "endpoint", "key": "whsec"}},
        "tls": {"caSecretRef": {"name": "endpoint-ca"}, "clientSecretRef": {"name": "endpoint-mtls"}},
    },
    "throttle": {"maxPerSecond": 50},
    "filter": {
        "properties": [
            {"property": "country", "in": ["ch", "at"]},
            {"property": "kind", "equals": "order"},
            {"property": "test", "exists": False},
        ]
    },
}


def connection(**fields: Any) -> PulsarConnectionSpec:
    return PulsarConnectionSpec.model_validate(PULSAR | fields)


def subscription(**fields: Any) -> Subscription:
    return Subscription.parse(
        {
            "metadata": {"name": "billing", "namespace": "shop", "uid": "uid-1", "generation": 1},
            "spec": {"topicRef": {"name": "orders"}, "delivery": {"url": "http://billing:8080"}} | fields,
        }
    )


def config(of: Subscription, count: int = 4, through: PulsarConnectionSpec | None = None) -> ShardConfig:
    return shard_config(of, through or connection(), wanted(count), count)


def objects(
    of: Subscription, count: int = 4, *, through: PulsarConnectionSpec | None = None, suspended: bool = False
) -> dict[str, Manifest]:
    """By kind; of the Leases, the last."""
    used = through or connection()
    platform = Platform("millrace:1.2", "Never", "text", "DEBUG")
    made = manifests(of, config(of, count, used), mounts(of, used), platform, suspended=suspended)
    return {manifest["kind"]: manifest for manifest in made}


def pod(of: Subscription, through: PulsarConnectionSpec | None = None) -> Manifest:
    spec: Manifest = objects(of, through=through)["Deployment"]["spec"]["template"]["spec"]
    return spec


# The configuration


def test_names_are_those_of_the_subscription() -> None:
    made = config(subscription())

    assert (made.topic, made.name, made.namespace, made.cluster_id) == (
        "shop/orders", "billing", "shop", "prod-eu",
    )  # fmt: skip
    assert made.subscription_name == "millrace.prod-eu.shop.billing"
    assert made.retry_descriptor_topic == "persistent://acme/shop/shop.billing_rq-descriptor"
    assert made.dead_letter_descriptor_topic == "persistent://acme/shop/shop.billing_dlq-descriptor"
    assert made.state_topic(3) == "persistent://acme/shop/shop.billing_state-0-3"
    assert made.lease_name(3) == "billing-0-3"


def test_a_topic_in_another_namespace_is_named_with_it() -> None:
    assert config(subscription(topicRef={"name": "orders", "namespace": "store"})).topic == "store/orders"


def test_everything_of_the_delivery_is_told() -> None:
    made = config(subscription(**FULL))

    assert made.delivery.timeout_seconds == 2.5
    assert made.delivery.headers == (HeaderConfig("x-tenant", "shop"),)
    assert made.delivery.headers_directory == "/etc/millrace/headers"
    assert made.delivery.batch == BatchConfig(10, 0.05)
    assert made.delivery.signing_secret_file == "/etc/millrace/endpoint/signing"
    assert made.delivery.ca_file == "/etc/millrace/endpoint/ca.crt"
    assert made.delivery.certificate_file == "/etc/millrace/endpoint/tls.crt"
    assert made.filter == (
        PropertyDemand("country", ("at", "ch")),
        PropertyDemand("kind", ("order",)),
        PropertyDemand("test", present=False),
    )
    assert ShardConfig.from_json(made.to_json()) == made


def test_each_shard_gets_its_part_of_the_rate() -> None:
    assert config(subscription(throttle={"maxPerSecond": 50}), 4).throttle.max_per_second == 12.5
    assert config(subscription()).throttle.max_per_second is None


def test_no_secret_and_no_file_that_is_not_mounted_is_in_the_configuration() -> None:
    made = config(subscription())

    assert made.delivery.headers_directory is None
    assert made.delivery.signing_secret_file is None
    assert made.pulsar.certificate_file is None
    assert (made.pulsar.token_file, made.pulsar.ca_file) == (
        "/etc/millrace/pulsar/token",
        "/etc/millrace/pulsar/ca.crt",
    )


@pytest.mark.parametrize(
    ("auth", "files"),
    [
        ({"type": "Token"}, {"token", "ca.crt"}),
        ({"type": "MTLS"}, {"tls.crt", "tls.key", "ca.crt"}),
        (
            {"type": "OAuth2", "oauth2": {"issuerUrl": "https://issuer", "audience": "pulsar"}},
            {"credentials.json", "ca.crt"},
        ),
    ],
    ids=["token", "mtls", "oauth2"],
)
def test_the_pods_mount_what_their_way_into_pulsar_takes_and_never_the_operators_secret(
    auth: dict[str, Any], files: set[str]
) -> None:
    used = connection(auth=auth)
    mounted = mounts(subscription(), used)

    assert {mount.file for mount in mounted} == files
    assert "pulsar-admin" not in {mount.name for mount in mounted}
    made = config(subscription(), through=used).pulsar
    assert made.auth_type is AuthType(auth["type"])
    assert (made.oauth2 == OAuth2Config("https://issuer", "pulsar", "")) == ("oauth2" in auth)


def test_a_connection_without_credentials_mounts_none() -> None:
    bare = PulsarConnectionSpec.model_validate(
        {
            "serviceUrl": "pulsar://pulsar:6650",
            "adminUrl": "http://pulsar:8080",
            "pulsarNamespaces": ["acme/shop"],
        }
    )

    assert mounts(subscription(), bare) == ()
    assert config(subscription(), through=bare).pulsar.token_file is None


def test_secrets_of_the_endpoint_become_files() -> None:
    assert set(mounts(subscription(**FULL), connection())) >= {
        Mounted("endpoint", "bearer", "/etc/millrace/headers", "Authorization"),
        Mounted("endpoint", "whsec", "/etc/millrace/endpoint", "signing"),
        Mounted("endpoint-ca", "ca.crt", "/etc/millrace/endpoint", "ca.crt"),
        Mounted("endpoint-mtls", "tls.key", "/etc/millrace/endpoint", "tls.key"),
        Mounted("pulsar-client", "jwt", "/etc/millrace/pulsar", "token"),
        Mounted("pulsar-ca", "ca.crt", "/etc/millrace/pulsar", "ca.crt", config_map=True),
    }


# The objects


def test_every_object_belongs_to_the_subscription_and_goes_with_it() -> None:
    made = objects(subscription())

    assert set(made) == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Lease", "Deployment"}
    for manifest in made.values():
        owner = manifest["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Subscription", "billing", "uid-1")
        assert manifest["metadata"]["namespace"] == "shop"
        assert manifest["metadata"]["labels"]["millrace.dev/subscription"] == "billing"


def test_the_deployment_comes_last() -> None:
    of = subscription()
    made = manifests(of, config(of), mounts(of, connection()), Platform("m"), suspended=False)

    assert [each["kind"] for each in made][-1] == "Deployment"
    assert len(made) == 4 + 4 + 1


@pytest.mark.parametrize(("standby", "suspended", "replicas"), [(1, False, 5), (0, False, 4), (3, True, 0)])
def test_there_is_a_pod_a_shard_and_some_that_stand_by_and_none_in_suspension(
    standby: int, suspended: bool, replicas: int
) -> None:
    made = objects(subscription(standby=standby), suspended=suspended)

    assert made["Deployment"]["spec"]["replicas"] == replicas


def test_pods_may_do_nothing_but_claim_their_shards() -> None:
    assert objects(subscription(), 2)["Role"]["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["billing-0-0", "billing-0-1"],
            "verbs": ["get", "update"],
        }
    ]


def test_a_lease_is_applied_without_a_word_about_its_holder() -> None:
    lease = objects(subscription(), 3)["Lease"]

    assert "spec" not in lease
    assert lease["metadata"]["name"] == "billing-0-2"
    assert lease["metadata"]["labels"]["millrace.dev/shard"] == "2"


def test_the_config_map_is_what_the_pod_reads() -> None:
    data = objects(subscription(**FULL))["ConfigMap"]["data"]

    assert ShardConfig.from_json(data["shard.json"]) == config(subscription(**FULL))


def test_a_pod_satisfies_the_restricted_profile_and_writes_nowhere_but_tmp() -> None:
    spec = pod(subscription(**FULL))

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    container = spec["containers"][0]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in spec["volumes"]
    }
    assert container["resources"]["limits"]["memory"]


def test_a_pod_runs_the_shard_of_the_operators_image() -> None:
    container = pod(subscription())["containers"][0]

    assert (container["image"], container["imagePullPolicy"]) == ("millrace:1.2", "Never")
    assert container["command"] == ["python", "-m", "millrace.shard"]
    probes = {probe: container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert container["ports"][0]["containerPort"] == 8080


@pytest.mark.parametrize(("timeout", "grace"), [("1s", 21), ("30s", 50), ("1h", 75)])
def test_a_pod_gets_time_to_finish_its_requests_but_not_for_ever(timeout: str, grace: int) -> None:
    of = subscription(delivery={"url": "http://billing", "timeout": timeout})

    assert pod(of)["terminationGracePeriodSeconds"] == grace


def test_a_pod_leaves_a_node_that_does_not_answer_soon() -> None:
    tolerations = {each["key"]: each for each in pod(subscription())["tolerations"]}

    assert {each["tolerationSeconds"] for each in tolerations.values()} == {20}
    assert set(tolerations) == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def test_what_the_user_asks_of_the_pods_is_there_beside_what_they_need() -> None:
    asked = {
        "resources": {"requests": {"cpu": 2}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 5}
        ],
        "env": [{"name": "TZ", "value": "UTC"}],
        "labels": {"team": "billing"},
        "annotations": {"a": "b"},
    }
    template = objects(subscription(podTemplate=asked))["Deployment"]["spec"]["template"]
    container = template["spec"]["containers"][0]

    assert container["resources"]["requests"] == {"cpu": "2"}
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
    keys = [each["key"] for each in template["spec"]["tolerations"]]
    assert sorted(keys) == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert {"name": "TZ", "value": "UTC"} in container["env"]
    assert template["metadata"]["labels"]["team"] == "billing"
    assert template["metadata"]["annotations"]["a"] == "b"


def test_pods_are_replaced_when_they_are_told_something_new_and_only_then() -> None:
    def digest(of: Subscription) -> str:
        template = objects(of)["Deployment"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["millrace.dev/config"])

    assert digest(subscription()) == digest(subscription(standby=3))
    assert digest(subscription()) != digest(subscription(retry={"maxAttempts": 3}))


def test_the_selector_is_that_of_the_pods() -> None:
    labels = objects(subscription())["Deployment"]["spec"]["template"]["metadata"]["labels"]

    chosen = dict(part.split("=") for part in selector_text("billing", 0).split(","))
    assert chosen.items() <= labels.items()
    assert objects(subscription())["Deployment"]["spec"]["selector"]["matchLabels"] == chosen
