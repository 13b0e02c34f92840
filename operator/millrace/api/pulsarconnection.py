"""PulsarConnection: where a Pulsar cluster is, how to be let in, and what may be touched there."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from millrace.api.meta import (
    SET,
    Conditions,
    Generation,
    ObjectName,
    PulsarNamespacePattern,
    Resource,
    Wire,
)
from millrace.api.validations import Matching, Rule, validated_by

_HOST = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
HOST_PORT = f"({_HOST})(:[0-9]{{1,5}})?"

SecretKey = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matching("[-._a-zA-Z0-9]+", "must be a key: letters, digits, '-', '_' and '.'"),
]


class AuthType(StrEnum):
    """How Pulsar is told who is asking."""

    NONE = "None"
    TOKEN = "Token"  # noqa: S105 (not one)
    MTLS = "MTLS"
    OAUTH2 = "OAuth2"


class OAuth2(Wire):
    """Where and for what an OAuth 2.0 token is asked (client credentials flow)."""

    issuer_url: Annotated[
        str,
        Field(max_length=1024),
        Matching("https://[^ @]+", "must be an https:// URL without a user or password in it"),
    ]
    """The issuer; its /.well-known/openid-configuration is read."""

    audience: Annotated[str, Field(min_length=1, max_length=1024)]
    """The audience that Pulsar expects."""

    scope: Annotated[str, Field(max_length=1024)] | None = None
    """Scopes to ask for, parted by spaces."""


class Auth(Wire):
    """How to be let in. The credentials themselves are in Secrets, and are read again when those change."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "(self.type == 'OAuth2') == has(self.oauth2)",
                "auth.oauth2 belongs to auth.type OAuth2: set both, or neither",
                field="oauth2",
            )
        )
    )

    type: AuthType = AuthType.NONE
    """None; Token (the Secret has tokenKey); MTLS (certificateKey and privateKeyKey); OAuth2 (credentialsKey,
    a JSON document with client_id and client_secret)."""

    oauth2: OAuth2 | None = None
    """Needed for type OAuth2."""


class CredentialsRef(Wire):
    """A Secret in the same namespace, and where in it to look. Only the keys of auth.type are read."""

    name: ObjectName
    """The Secret's name."""

    token_key: SecretKey = "token"  # noqa: S105 (the name of a key)
    """Token: the key of the token."""

    certificate_key: SecretKey = "tls.crt"
    """MTLS: the key of the certificate."""

    private_key_key: SecretKey = "tls.key"
    """MTLS: the key of the private key."""

    credentials_key: SecretKey = "credentials.json"
    """OAuth2: the key of the client credentials."""


class CertificateRef(Wire):
    """A Secret or ConfigMap in the same namespace that holds certificates in PEM form."""

    name: ObjectName
    """Its name."""

    key: SecretKey = "ca.crt"
    """The key in it."""


class TLS(Wire):
    """How the server's certificate is checked. Without a CA here, those of the system are trusted."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "!(has(self.caSecretRef) && has(self.caConfigMapRef))",
                "set either tls.caSecretRef or tls.caConfigMapRef, not both",
                field="caConfigMapRef",
            ),
            Rule(
                "!self.allowInsecure || !(has(self.caSecretRef) || has(self.caConfigMapRef))",
                "tls.allowInsecure trusts any certificate, so a CA would have no effect: remove one of them",
                field="allowInsecure",
            ),
        )
    )

    ca_secret_ref: CertificateRef | None = None
    """The CA to trust, in a Secret."""

    ca_config_map_ref: CertificateRef | None = None
    """The CA to trust, in a ConfigMap."""

    allow_insecure: bool = False
    """Trust any certificate. Whoever is on the way can then read and change everything."""

    validate_hostname: bool = True
    """Whether the certificate must be for the URL's host."""


_HAS_TLS = "(self.serviceUrl.startsWith('pulsar+ssl://') || self.adminUrl.startsWith('https://'))"

_RULES = (
    Rule(
        "self.auth.type == 'None' || has(self.adminSecretRef)",
        "adminSecretRef is required unless auth.type is None: name the Secret of the operator's credentials",
        field="adminSecretRef",
    ),
    Rule(
        "self.auth.type != 'None' || (!has(self.adminSecretRef) && !has(self.clientSecretRef))",
        "adminSecretRef and clientSecretRef are not used with auth.type None: set auth.type, or remove them",
        field="auth.type",
    ),
    Rule(
        "self.auth.type != 'MTLS'"
        " || (self.serviceUrl.startsWith('pulsar+ssl://') && self.adminUrl.startsWith('https://'))",
        "auth.type MTLS needs TLS on both ways: use pulsar+ssl:// in serviceUrl and https:// in adminUrl",
        field="auth.type",
    ),
    Rule(
        f"!has(self.tls) || {_HAS_TLS}",
        "tls has no effect on pulsar:// and http:// URLs: use pulsar+ssl:// or https://, or remove tls",
        field="tls",
    ),
)


class PulsarConnectionSpec(Wire):
    """A Pulsar cluster, as objects in this namespace may use it."""

    model_config = ConfigDict(json_schema_extra=validated_by(*_RULES))

    service_url: Annotated[
        str,
        Field(max_length=1024),
        Matching(
            f"pulsar([+]ssl)?://{HOST_PORT}(,{HOST_PORT})*/?",
            "must be pulsar://HOST:PORT or pulsar+ssl://HOST:PORT (several hosts are parted by commas)",
        ),
    ]
    """The brokers or the proxy: pulsar://HOST:PORT, or pulsar+ssl:// with TLS."""

    admin_url: Annotated[
        str,
        Field(max_length=1024),
        Matching(
            f"https?://{HOST_PORT}(/[^ ?#@]*)?",
            "must be http://HOST:PORT or https://HOST:PORT, without a user, password or query",
        ),
    ]
    """The admin REST API: http://HOST:PORT, or https:// with TLS."""

    pulsar_namespaces: Annotated[
        tuple[PulsarNamespacePattern, ...],
        Field(min_length=1, max_length=64, json_schema_extra=SET),
    ]
    """The Pulsar namespaces that may be used through this connection: TENANT/NAMESPACE, or TENANT/*."""

    is_default: bool = False
    """Whether objects of this namespace that name no connection use this one. Have one such."""

    auth: Auth = Auth()
    """How to be let in."""

    admin_secret_ref: CredentialsRef | None = None
    """The operator's credentials: may manage the topics of pulsarNamespaces. Never given to pods."""

    client_secret_ref: CredentialsRef | None = None
    """The pods' credentials: may produce and consume. The operator's are never used in their place."""

    tls: TLS | None = None
    """How the server's certificate is checked."""

    def permits(self, pulsar_namespace: str) -> bool:
        """Whether topics of a Pulsar namespace may be touched through this connection."""
        tenant = pulsar_namespace.partition("/")[0]
        return pulsar_namespace in self.pulsar_namespaces or f"{tenant}/*" in self.pulsar_namespaces


class PulsarConnectionStatus(Wire):
    """Whether the connection works."""

    observed_generation: Generation = 0
    """The generation that was last acted on."""

    conditions: Conditions = ()
    """Ready, Reconciling and Stalled; docs/conditions.md explains every reason."""


class PulsarConnection(Resource[PulsarConnectionSpec, PulsarConnectionStatus]):
    """A Pulsar cluster: URLs, credentials, TLS, and the Pulsar namespaces that may be used."""
