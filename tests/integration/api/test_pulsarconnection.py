"""Each rule of PulsarConnection, refused and allowed by a real API server."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.integration.api.apiserver import PULSAR_CONNECTION, ApiServer, Manifest, RefusedError

pytestmark = pytest.mark.integration

TLS_URLS = {"serviceUrl": "pulsar+ssl://pulsar:6651", "adminUrl": "https://pulsar:8443"}
OAUTH2 = {"issuerUrl": "https://issuer.example.com", "audience": "pulsar"}
SECRET = {"name": "pulsar"}


def spec(**fields: Any) -> Manifest:
    return {
        "serviceUrl": "pulsar://pulsar:6650",
        "adminUrl": "http://pulsar:8080",
        "pulsarNamespaces": ["public/default"],
    } | fields


class Invalid(NamedTuple):
    """An object that cannot be created."""

    name: str
    spec: Manifest
    field: str
    message: str


SERVICE_URL = "must be pulsar://HOST:PORT or pulsar+ssl://HOST:PORT (several hosts are parted by commas)"
ADMIN_URL = "must be http://HOST:PORT or https://HOST:PORT, without a user, password or query"
NAMESPACES = "must be TENANT/NAMESPACE, or TENANT/* for every namespace of a tenant; a tenant is always named"
ADMIN_SECRET = (
    "adminSecretRef is required unless auth.type is None: name the Secret of the operator's credentials"
)
UNUSED_SECRET = (
    "adminSecretRef and clientSecretRef are not used with auth.type None: set auth.type, or remove them"
)
MTLS = "auth.type MTLS needs TLS on both ways: use pulsar+ssl:// in serviceUrl and https:// in adminUrl"
OAUTH2_AND_TYPE = "auth.oauth2 belongs to auth.type OAuth2: set both, or neither"
UNUSED_TLS = "tls has no effect on pulsar:// and http:// URLs: use pulsar+ssl:// or https://, or remove tls"
TWO_CAS = "set either tls.caSecretRef or tls.caConfigMapRef, not both"
INSECURE_WITH_CA = (
    "tls.allowInsecure trusts any certificate, so a CA would have no effect: remove one of them"
)

OBJECT_NAME = "must be the name of an object: lower-case letters, digits, '-' and '.'"
KEY = "must be a key: letters, digits, '-', '_' and '.'"
TOKEN: Manifest = {"auth": {"type": "Token"}, "adminSecretRef": SECRET}
CREDENTIAL_KEYS = ("tokenKey", "certificateKey", "privateKeyKey", "credentialsKey")

INVALID = [
    *(
        Invalid(f"{ref} {key}", spec(**TOKEN | {ref: SECRET | {key: "a/b"}}), f"spec.{ref}.{key}", message)
        for ref in ("adminSecretRef", "clientSecretRef")
        for key, message in [("name", OBJECT_NAME), *((key, KEY) for key in CREDENTIAL_KEYS)]
    ),
    *(
        Invalid(
            f"{ref} {key}",
            spec(**TLS_URLS, tls={ref: SECRET | {key: "a/b"}}),
            f"spec.tls.{ref}.{key}",
            message,
        )
        for ref in ("caSecretRef", "caConfigMapRef")
        for key, message in [("name", OBJECT_NAME), ("key", KEY)]
    ),
    *(
        Invalid(f"the service URL {url!r}", spec(serviceUrl=url), "spec.serviceUrl", SERVICE_URL)
        for url in (
            "",
            "pulsar",
            "http://pulsar:6650",
            "pulsar+tls://pulsar:6651",
            "pulsar://",
            "pulsar://user:secret@pulsar:6650",
            "pulsar://pulsar:6650/topic",
            "pulsar://a:6650,",
            "xpulsar://pulsar:6650",
        )
    ),
    *(
        Invalid(f"the admin URL {url!r}", spec(adminUrl=url), "spec.adminUrl", ADMIN_URL)
        for url in (
            "",
            "pulsar:8080",
            "pulsar://pulsar:8080",
            "http://",
            "http://user:secret@pulsar:8080",
            "http://pulsar:8080/?token=secret",
            "http://pulsar:8080/#here",
        )
    ),
    *(
        Invalid(
            f"the namespace {name!r}", spec(pulsarNamespaces=[name]), "spec.pulsarNamespaces[0]", NAMESPACES
        )
        for name in ("default", "*/*", "*/default", "public/*x", "public/a/b", "public/ a")
    ),
    Invalid(
        "no Pulsar namespaces",
        spec(pulsarNamespaces=[]),
        "spec.pulsarNamespaces",
        "spec.pulsarNamespaces in body should have at least 1 items",
    ),
    Invalid(
        "a Pulsar namespace twice",
        spec(pulsarNamespaces=["public/a", "public/a"]),
        "spec.pulsarNamespaces[1]",
        'Duplicate value: "public/a"',
    ),
    Invalid("a token without a Secret", spec(auth={"type": "Token"}), "spec.adminSecretRef", ADMIN_SECRET),
    Invalid(
        "a token with a Secret for pods only",
        spec(auth={"type": "Token"}, clientSecretRef=SECRET),
        "spec.adminSecretRef",
        ADMIN_SECRET,
    ),
    Invalid("a Secret without a type", spec(adminSecretRef=SECRET), "spec.auth.type", UNUSED_SECRET),
    Invalid("a pods' Secret without a type", spec(clientSecretRef=SECRET), "spec.auth.type", UNUSED_SECRET),
    Invalid("mTLS without TLS", spec(auth={"type": "MTLS"}, adminSecretRef=SECRET), "spec.auth.type", MTLS),
    Invalid(
        "mTLS with TLS on one way",
        spec(auth={"type": "MTLS"}, adminSecretRef=SECRET, serviceUrl="pulsar+ssl://pulsar:6651"),
        "spec.auth.type",
        MTLS,
    ),
    Invalid(
        "OAuth2 without an issuer",
        spec(auth={"type": "OAuth2"}, adminSecretRef=SECRET),
        "spec.auth.oauth2",
        OAUTH2_AND_TYPE,
    ),
    Invalid(
        "an issuer without OAuth2",
        spec(auth={"type": "Token", "oauth2": OAUTH2}, adminSecretRef=SECRET),
        "spec.auth.oauth2",
        OAUTH2_AND_TYPE,
    ),
    Invalid(
        "an issuer without TLS",
        spec(auth={"type": "OAuth2", "oauth2": OAUTH2 | {"issuerUrl": "http://x"}}, adminSecretRef=SECRET),
        "spec.auth.oauth2.issuerUrl",
        "must be an https:// URL without a user or password in it",
    ),
    Invalid("TLS settings without TLS", spec(tls={}), "spec.tls", UNUSED_TLS),
    Invalid(
        "two CAs",
        spec(**TLS_URLS, tls={"caSecretRef": SECRET, "caConfigMapRef": SECRET}),
        "spec.tls.caConfigMapRef",
        TWO_CAS,
    ),
    Invalid(
        "a CA that would not be used",
        spec(**TLS_URLS, tls={"caSecretRef": SECRET, "allowInsecure": True}),
        "spec.tls.allowInsecure",
        INSECURE_WITH_CA,
    ),
]

VALID = {
    "plain": spec(),
    "several brokers": spec(serviceUrl="pulsar://a:6650,b:6650,c.d.svc.cluster.local:6650"),
    "an IPv6 address": spec(serviceUrl="pulsar://[::1]:6650", adminUrl="http://[::1]:8080"),
    "a path before the admin API": spec(adminUrl="http://proxy/pulsar/"),
    "every namespace of a tenant": spec(pulsarNamespaces=["public/*", "team-a/orders"]),
    "the default": spec(isDefault=True),
    "TLS": spec(**TLS_URLS),
    "TLS with a CA in a Secret": spec(**TLS_URLS, tls={"caSecretRef": SECRET}),
    "TLS with a CA in a ConfigMap": spec(**TLS_URLS, tls={"caConfigMapRef": SECRET | {"key": "root.pem"}}),
    "TLS for the admin API only": spec(adminUrl="https://pulsar:8443", tls={"validateHostname": False}),
    "a token": spec(auth={"type": "Token"}, adminSecretRef=SECRET, clientSecretRef={"name": "pods"}),
    "mTLS": spec(**TLS_URLS, auth={"type": "MTLS"}, adminSecretRef=SECRET),
    "OAuth2": spec(auth={"type": "OAuth2", "oauth2": OAUTH2}, adminSecretRef=SECRET),
    "the largest": spec(
        pulsarNamespaces=[f"{i:02}{'t' * 97}/{'n' * 100}" for i in range(64)],
        serviceUrl=f"pulsar://{'a' * 500}:6650,{'b' * 500}:6650",
        adminUrl=f"https://{'a' * 1000}:8080",
    ),
}


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.name.replace(" ", "-"))
def test_an_object_is_refused_with_a_sentence_that_says_what_to_do(
    api_server: ApiServer, case: Invalid
) -> None:
    with pytest.raises(RefusedError) as refused:
        api_server.create(PULSAR_CONNECTION, case.spec)

    assert refused.value.says(case.field, case.message), refused.value.causes


@pytest.mark.parametrize("name", VALID)
def test_an_object_is_accepted(api_server: ApiServer, name: str) -> None:
    created = api_server.create(PULSAR_CONNECTION, VALID[name])

    assert created["spec"]["serviceUrl"] == VALID[name]["serviceUrl"]


def test_everything_may_change(api_server: ApiServer) -> None:
    created = api_server.create(PULSAR_CONNECTION, VALID["plain"])

    for name, new in VALID.items():
        replaced = api_server.replace(PULSAR_CONNECTION, created, new)
        assert replaced["spec"]["pulsarNamespaces"] == new["pulsarNamespaces"], name


def test_defaults_are_written_into_the_object(api_server: ApiServer) -> None:
    written = spec(**TLS_URLS, tls={}, auth={"type": "Token"}, adminSecretRef=SECRET)

    created = api_server.create(PULSAR_CONNECTION, written)
    bare = api_server.create(PULSAR_CONNECTION, spec())

    assert created["spec"] == written | {
        "isDefault": False,
        "tls": {"allowInsecure": False, "validateHostname": True},
        "adminSecretRef": {
            "name": "pulsar",
            "tokenKey": "token",
            "certificateKey": "tls.crt",
            "privateKeyKey": "tls.key",
            "credentialsKey": "credentials.json",
        },
    }
    assert bare["spec"] == spec(isDefault=False, auth={"type": "None"})
