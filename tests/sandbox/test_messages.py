"""What the command says when it cannot do what was asked, and what a shell can do with what it prints."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.sandbox import commands, traces

# The modules first, for another user may not be able to read them.
WITHOUT_ROOT = """
import os, sys
from sandbox.__main__ import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def without_root(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOT, "--name", commands.fresh_name(), *arguments],
        cwd=commands.REPOSITORY,
        env={**commands.environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_root_it_says_so_and_names_the_way_out() -> None:
    refused = without_root("up")
    assert refused.returncode == 1
    assert "needs root" in refused.stderr
    assert "KUBECONFIG" in refused.stderr
    assert "MILLRACE_USE_CLUSTER=1" in refused.stderr


def test_the_way_out_needs_no_root() -> None:
    done = without_root("up", MILLRACE_USE_CLUSTER="1", KUBECONFIG="/etc/hostname")
    assert done.returncode == 0, done.stderr
    assert "starting nothing" in done.stderr


@pytest.mark.parametrize("command", ["up", "exec"])
def test_a_cluster_of_ones_own_has_to_be_named(command: str) -> None:
    refused = without_root(command, *(["true"] * (command == "exec")), MILLRACE_USE_CLUSTER="1")
    assert refused.returncode == 1
    assert "KUBECONFIG names no file" in refused.stderr


@pytest.mark.parametrize("command", ["restart", "kill"])
def test_who_uses_a_cluster_of_their_own_does_not_hit_a_sandbox_by_accident(command: str) -> None:
    refused = without_root(command, "pulsar", MILLRACE_USE_CLUSTER="1", KUBECONFIG="/etc/hostname")
    assert refused.returncode == 1
    assert "MILLRACE_USE_CLUSTER is set" in refused.stderr


@pytest.mark.parametrize("command", ["status", "env", "down"])
def test_a_name_that_cannot_be_used_is_refused(command: str) -> None:
    refused = commands.run("../elsewhere", command)
    assert refused.returncode == 1
    assert "is no name for a sandbox" in refused.stderr
    assert refused.stdout == ""


def test_exec_in_a_sandbox_that_is_not_up_says_how_to_bring_it_up() -> None:
    name = commands.fresh_name()
    refused = commands.run(name, "exec", "--", "true")
    assert refused.returncode == 1
    assert f"--name {name} up" in " ".join(refused.stderr.split())


def test_killing_what_does_not_run_or_does_not_exist_is_refused() -> None:
    name = commands.fresh_name()
    for component, said in (("etcd", "does not run"), ("nothing", "no component")):
        refused = commands.run(name, "kill", component)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert traces.of(name) == [], "a refusal leaves nothing behind"


def test_a_shell_can_evaluate_what_env_prints() -> None:
    name = commands.fresh_name()
    command = shlex.join(commands.argv(name, "env"))
    wanted = ("SANDBOX", "KUBECONFIG", "PULSAR_SERVICE_URL", "PULSAR_TOKEN_FILE", "SANDBOX_ENTER")
    shown = "; ".join(f'printf "%s\\n" "${variable}"' for variable in wanted)
    done = subprocess.run(
        ["sh", "-euc", f'eval "$({command})"; {shown}; command -v kubectl'],
        cwd=commands.REPOSITORY,
        env=commands.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    sandbox, kubeconfig, service_url, token, enter, kubectl = done.stdout.splitlines()
    assert sandbox == name
    assert kubeconfig == f"/var/lib/millrace/{name}/admin.kubeconfig"
    assert service_url.startswith("pulsar+ssl://")
    assert token.startswith(f"/var/lib/millrace/{name}/")
    assert enter.split() == ["nsenter", f"--net=/run/netns/millrace-{name}"]
    assert kubectl.endswith("/kubectl")
    assert traces.of(name) == [], "asking makes nothing"
