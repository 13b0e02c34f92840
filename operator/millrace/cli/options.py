"""The options that several commands share, and the values they become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.display import Output
from millrace.cli.failures import BadInput
from millrace.core.names import TopicName

if TYPE_CHECKING:
    from millrace.client import Connection

# The client's own, repeated because importing it for them takes longer than all the rest.
DEFAULT_SERVICE_URL = "pulsar://localhost:6650"
DEFAULT_PULSAR_NAMESPACE = "public/default"
DEFAULT_TIMEOUT = 30.0

PANEL = "Connection"

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Text for people, or JSON: one document a line.")
]
TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        show_default=False,
        help="The composite topic as KUBERNETES_NAMESPACE/NAME, or the full name of its descriptor topic.",
    ),
]
ServiceUrl = Annotated[
    str,
    typer.Option(envvar="PULSAR_SERVICE_URL", help="Where the brokers are.", rich_help_panel=PANEL),
]
PulsarNamespace = Annotated[
    str,
    typer.Option(
        envvar="PULSAR_NAMESPACE",
        help="TENANT/NAMESPACE in Pulsar: the CompositeTopic's spec.pulsarNamespace.",
        rich_help_panel=PANEL,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="PULSAR_TOKEN_FILE",
        exists=True,
        dir_okay=False,
        help="A file with a token that may produce and consume.",
        rich_help_panel=PANEL,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        envvar="PULSAR_CA_FILE",
        exists=True,
        dir_okay=False,
        help="Whom to trust with pulsar+ssl://.",
        rich_help_panel=PANEL,
    ),
]
CertificateFile = Annotated[
    Path | None,
    typer.Option(
        envvar="PULSAR_CERTIFICATE_FILE",
        exists=True,
        dir_okay=False,
        help="A client certificate, instead of a token; needs --key-file.",
        rich_help_panel=PANEL,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar="PULSAR_KEY_FILE",
        exists=True,
        dir_okay=False,
        help="The client certificate's key.",
        rich_help_panel=PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=1.0, max=3600.0, help="Seconds to wait for an answer of the brokers.", rich_help_panel=PANEL
    ),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Say what the connection does.", rich_help_panel=PANEL),
]


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach Pulsar, as it was asked for."""

    service_url: str = DEFAULT_SERVICE_URL
    pulsar_namespace: str = DEFAULT_PULSAR_NAMESPACE
    token_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    timeout: float = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise BadInput("a client certificate needs its key, and a key its certificate: give both")
        if self.token_file is not None and self.certificate_file is not None:
            raise BadInput("give either --token-file or --certificate-file, not both")

    def connection(self) -> Connection:
        """A connection, which contacts nobody before its first use."""
        from millrace.client import Connection  # noqa: PLC0415 - loads the native client

        return Connection(
            self.service_url,
            token_file=self.token_file,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            operation_timeout=self.timeout,
        )

    def descriptor_topic(self, topic: str) -> str:
        """Where the composite topic's descriptor is; raises for what cannot be the name of one."""
        from millrace.client.connection import descriptor_topic  # noqa: PLC0415 - loads the native client

        return str(TopicName.parse(descriptor_topic(topic, self.pulsar_namespace)))
