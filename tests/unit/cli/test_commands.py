"""What all commands have in common: help, versions, exit codes, and that nothing is loaded for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import millrace
from millrace.cli import options
from millrace.cli.app import app
from millrace.cli.failures import BAD_INPUT, FAILED, BadInput, explain
from millrace.client import connection
from millrace.client.errors import InvalidMessage, PayloadTooLarge, ProducerFailed, TopicNotFound
from millrace.core.errors import DescriptorError, InvalidGroupId, InvalidLayout, InvalidName
from millrace.pulsar.errors import Misconfigured, Unauthorized, Unavailable

OPERATOR = Path(__file__).parents[3] / "operator"
CONNECTED = ["topic", "produce", "tail"]
RUNNER = CliRunner(
    env={
        "PULSAR_SERVICE_URL": None,
        "PULSAR_TOKEN_FILE": None,
        "PULSAR_CA_FILE": None,
        "PULSAR_NAMESPACE": None,
    }
)


@pytest.mark.parametrize("command", [[], ["version"], ["route"], ["topic"], ["produce"], ["tail"]])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help(command: list[str], option: str) -> None:
    result = RUNNER.invoke(app, [*command, option])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: " in result.stdout


def test_the_version_is_the_package_s() -> None:
    assert RUNNER.invoke(app, ["version"]).stdout == f"millrace {millrace.__version__}\n"
    answer = RUNNER.invoke(app, ["version", "--output", "json"]).stdout
    assert json.loads(answer) == {"version": millrace.__version__}


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["version", "--bogus"], ["version", "extra"]])
def test_a_command_that_does_not_exist_is_told_in_one_sentence(arguments: list[str]) -> None:
    result = RUNNER.invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("millrace: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_defaults_are_the_client_s() -> None:
    assert options.DEFAULT_SERVICE_URL == connection.DEFAULT_SERVICE_URL
    assert options.DEFAULT_PULSAR_NAMESPACE == connection.DEFAULT_PULSAR_NAMESPACE


@pytest.mark.parametrize("command", CONNECTED)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["orders"], "'orders' is no composite topic: expected NAMESPACE/NAME"),
        (["a/b/c"], "'a/b/c' is no composite topic: expected NAMESPACE/NAME"),
        (["http://example.org/a/b"], "'http://example.org/a/b' is not a full topic name"),
        (["a/b", "--pulsar-namespace", "public"], "'public' is not a Pulsar namespace"),
        (["a/b", "--service-url", "http://localhost:8080"], "'http://localhost:8080' is no service URL"),
        (["a/b", "--token-file", "/nowhere/token"], "invalid value for '--token-file'"),
        (["a/b", "--ca-file", "/nowhere/ca.crt"], "invalid value for '--ca-file'"),
        (["a/b", "--certificate-file", "/dev/null"], "a client certificate needs its key"),
        (["a/b", "--key-file", "/dev/null"], "a client certificate needs its key"),
        (["a/b", "--timeout", "0"], "invalid value for '--timeout'"),
    ],
)
def test_a_connection_that_cannot_be_is_refused_before_anybody_is_contacted(
    command: str, arguments: list[str], sentence: str
) -> None:
    more = ["--group", "g", "--payload", "x"] if command == "produce" else []
    result = RUNNER.invoke(app, [command, *arguments, *more])
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert result.stderr.startswith(f"millrace: {sentence}")
    assert len(result.stderr.splitlines()) == 1


def test_a_broker_that_is_not_there_is_a_failure() -> None:
    # Port 1 of this machine: nobody listens there.
    result = RUNNER.invoke(app, ["topic", "a/b", "--service-url", "pulsar://127.0.0.1:1", "--timeout", "1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("millrace: cannot read persistent://public/default/a.b-descriptor: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("x"), BAD_INPUT),
        (InvalidGroupId("x"), BAD_INPUT),
        (InvalidLayout("x"), BAD_INPUT),
        (InvalidName("x"), BAD_INPUT),
        (InvalidMessage("x"), BAD_INPUT),
        (PayloadTooLarge("x"), BAD_INPUT),
        (Misconfigured("x"), BAD_INPUT),
        (DescriptorError("x"), FAILED),
        (TopicNotFound("x"), FAILED),
        (ProducerFailed("x"), FAILED),
        (Unauthorized("x"), FAILED),
        (Unavailable("x"), FAILED),
        (OSError("x"), FAILED),
    ],
)
def test_an_error_is_bad_input_if_the_command_can_be_put_right(error: Exception, code: int) -> None:
    assert explain(error) == (code, "x")


def test_an_error_of_our_own_keeps_its_trace() -> None:
    assert explain(AssertionError("x")) is None


def test_a_command_that_only_computes_loads_no_client() -> None:
    program = (
        "import sys\n"
        "from millrace.cli import main\n"
        "sys.argv = ['millrace', 'route', 'g', '--partitions', '4']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'pulsar', '_pulsar', 'aiohttp', 'kopf', 'kubernetes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(OPERATOR)}, check=True)
