"""The commands and their options. Each parses, calls, and is done."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, Literal

import typer

import millrace
from millrace.cli.display import log_to_stderr, print_json
from millrace.cli.failures import Commands
from millrace.cli.options import (
    DEFAULT_PULSAR_NAMESPACE,
    DEFAULT_SERVICE_URL,
    DEFAULT_TIMEOUT,
    Access,
    CaFile,
    CertificateFile,
    KeyFile,
    OutputOption,
    PulsarNamespace,
    ServiceUrl,
    Timeout,
    TokenFile,
    TopicArgument,
    Verbose,
)

app = typer.Typer(
    name="millrace",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio  # noqa: PLC0415 - half of what a command that only computes would load

    asyncio.run(work)


@app.callback()
def millrace_() -> None:
    """Look into composite topics of Apache Pulsar: where groups go, what a topic is made of, what it holds.

    Exit codes: 0 done, 1 failed, 2 bad input (nothing was sent), 130 interrupted.
    """


@app.command()
def version(output: OutputOption = "text") -> None:
    """Say which version this is."""
    if output == "json":
        print_json({"version": millrace.__version__})
    else:
        print(f"millrace {millrace.__version__}")


@app.command()
def route(
    group_id: Annotated[str, typer.Argument(metavar="GROUP_ID", help="The partition key in Pulsar.")],
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="P: how many partitions the storage topic has.")
    ],
    k: Annotated[
        int,
        typer.Option("--k", "-k", help="K: how many times its base the topic has; `millrace topic` says."),
    ] = 1,
    routing: Annotated[
        Literal["ShardConsistent", "Range"],
        typer.Option(case_sensitive=False, help="How hashes are mapped to partitions."),
    ] = "ShardConsistent",
    shards: Annotated[
        int | None, typer.Option(help="Also say which of this many shards the group belongs to.")
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Say which partition, base partition and shard a group goes to. Connects to nothing."""
    from millrace.cli import routes  # noqa: PLC0415
    from millrace.core.routing import Layout, Routing  # noqa: PLC0415

    found = routes.route(group_id, Layout(partitions, k, Routing(routing)), shards)
    if output == "json":
        print_json(found.document())
    else:
        print(found.text())


@app.command()
def topic(
    name: TopicArgument,
    *,
    output: OutputOption = "text",
    service_url: ServiceUrl = DEFAULT_SERVICE_URL,
    pulsar_namespace: PulsarNamespace = DEFAULT_PULSAR_NAMESPACE,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    certificate_file: CertificateFile = None,
    key_file: KeyFile = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    verbose: Verbose = False,
) -> None:
    """Show a composite topic from its descriptor in Pulsar: its storage topics, and where producers write."""
    access = Access(service_url, pulsar_namespace, token_file, ca_file, certificate_file, key_file, timeout)
    log_to_stderr(verbose=verbose)
    from millrace.cli import topics  # noqa: PLC0415 - loads the native client

    _run(topics.show(access, name, output))


@app.command()
def produce(
    name: TopicArgument,
    *,
    group: Annotated[str, typer.Option("--group", "-g", help="The group id of every message.")],
    payload: Annotated[
        str | None, typer.Option(help="One message. Without it, every line of standard input is one.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="A property of every message; may be repeated."
        ),
    ] = None,
    output: OutputOption = "text",
    service_url: ServiceUrl = DEFAULT_SERVICE_URL,
    pulsar_namespace: PulsarNamespace = DEFAULT_PULSAR_NAMESPACE,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    certificate_file: CertificateFile = None,
    key_file: KeyFile = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    verbose: Verbose = False,
) -> None:
    """Send messages of one group, and say where each was stored."""
    access = Access(service_url, pulsar_namespace, token_file, ca_file, certificate_file, key_file, timeout)
    log_to_stderr(verbose=verbose)
    from millrace.cli import producing  # noqa: PLC0415 - loads the native client

    order = producing.Order(
        topic=name,
        group_id=group,
        # As it was typed, also where that is no UTF-8.
        payload=None if payload is None else payload.encode(errors="surrogateescape"),
        properties=producing.parse_properties(properties or ()),
    )
    _run(producing.produce(access, order, output))


@app.command()
def tail(
    name: TopicArgument,
    *,
    beginning: Annotated[
        Literal["earliest", "latest"],
        typer.Option(
            "--from", help="With the oldest message there is, or with the next one that is written."
        ),
    ] = "latest",
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only messages of this group.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after this many.")] = None,
    output: OutputOption = "text",
    service_url: ServiceUrl = DEFAULT_SERVICE_URL,
    pulsar_namespace: PulsarNamespace = DEFAULT_PULSAR_NAMESPACE,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    certificate_file: CertificateFile = None,
    key_file: KeyFile = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    verbose: Verbose = False,
) -> None:
    """Print messages as they come: position, group, payload, properties. Each group in its order.

    Nothing is acknowledged, and no subscription is left behind. Ctrl-C ends it.
    """
    access = Access(service_url, pulsar_namespace, token_file, ca_file, certificate_file, key_file, timeout)
    log_to_stderr(verbose=verbose)
    from millrace.cli import tailing  # noqa: PLC0415 - loads the native client

    _run(tailing.tail(access, tailing.Wish(name, beginning, group, limit), output))
