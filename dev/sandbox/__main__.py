"""`python -m sandbox`: a real Kubernetes and a real Pulsar on this machine, in a network of their own."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandbox import environment, netns, processes, progress, stack, teardown
from sandbox.layout import Layout, SandboxError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors that a user can act on become a message and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(Layout.named(options.name), options) or 0)
    except SandboxError as error:
        progress.console.print("[red bold]sandbox:[/]", end=" ")
        progress.console.print(str(error), markup=False)
        return 1
    except KeyboardInterrupt:
        progress.console.print(
            "sandbox: interrupted; `up` continues where it stopped, `down` removes everything"
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    parser.add_argument(
        "--name", help="which sandbox; $SANDBOX, or `dev`, if not given. Several can run side by side"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="bring the sandbox up; what runs already is left alone")
    up.add_argument(
        "--without-release", action="store_true", help="without the spark-operator and Millrace's chart"
    )
    up.add_argument(
        "--only",
        choices=[extent.value for extent in stack.Extent if extent is not stack.Extent.ALL],
        help="a part: the control plane without a node, the cluster without Pulsar, or Pulsar alone",
    )
    up.set_defaults(run=_up)

    down = commands.add_parser(
        "down", help="remove the sandbox: processes, mounts, namespaces, cgroups and files"
    )
    down.set_defaults(run=_down)
    env = commands.add_parser("env", help="print shell assignments for use from outside")
    env.set_defaults(run=_env)
    status = commands.add_parser("status", help="show what runs; exit code 1 if nothing does")
    status.set_defaults(run=_status)

    enter = commands.add_parser("exec", help="run a command in the sandbox's network with `env` set")
    enter.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")
    enter.set_defaults(run=_exec)

    for name, run, text in (
        ("restart", _restart, "stop a component in an orderly way and start it again"),
        ("kill", _kill, "kill a component as a power cut would"),
        ("logs", _logs, "show a component's log"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("component", help="as `status` shows it")
        if name == "logs":
            command.add_argument("--follow", "-f", action="store_true", help="keep showing what is added")
        command.set_defaults(run=run)
    return parser


def _up(layout: Layout, options: argparse.Namespace) -> None:
    if environment.uses_own_cluster():
        environment.check_own_cluster()
        progress.console.print(
            f"{environment.USE_CLUSTER} is set: using the cluster of KUBECONFIG, starting nothing"
        )
        return
    extent = stack.Extent(options.only or stack.Extent.ALL)
    with _alone(layout):
        stack.up(layout, extent=extent, release=not options.without_release)


def _down(layout: Layout, _: argparse.Namespace) -> None:
    if environment.uses_own_cluster():
        return
    with _alone(layout):
        teardown.down(layout)


def _env(layout: Layout, _: argparse.Namespace) -> None:
    print(environment.assignments(layout))


def _exec(layout: Layout, options: argparse.Namespace) -> None:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise SandboxError("give the command to run: python -m sandbox exec -- COMMAND ...")
    if environment.uses_own_cluster():
        environment.check_own_cluster()
        prefix: list[str] = []
    elif netns.exists(layout):
        prefix = layout.enter()
        netns.remember_outside()
        os.environ.update(environment.variables(layout))
    else:
        raise SandboxError(
            f"sandbox {layout.name!r} is not up: run `python -m sandbox --name {layout.name} up` first"
        )
    sys.stdout.flush()
    try:
        os.execvp([*prefix, *command][0], [*prefix, *command])
    except FileNotFoundError:
        raise SandboxError(f"there is no program {command[0]!r}") from None


def _status(layout: Layout, _: argparse.Namespace) -> int:
    running = 0
    for component in stack.component_names(layout):
        pid = processes.pid_of(layout, component)
        running += pid is not None
        print(f"{component:26} {f'running (pid {pid})' if pid else 'not running'}")
    return 0 if running else 1


def _restart(layout: Layout, options: argparse.Namespace) -> None:
    _refuse_for_own_cluster()
    with _alone(layout):
        stack.restart(layout, options.component)


def _kill(layout: Layout, options: argparse.Namespace) -> None:
    _refuse_for_own_cluster()
    stack.kill(layout, options.component)


def _refuse_for_own_cluster() -> None:
    """Whoever uses a cluster of their own does not mean the sandbox that may be there beside it."""
    if environment.uses_own_cluster():
        raise SandboxError(
            f"{environment.USE_CLUSTER} is set, and this is for a sandbox's components: unset it, "
            "or do the same to your own cluster by your own means"
        )


def _logs(layout: Layout, options: argparse.Namespace) -> int:
    path = layout.logs / f"{options.component}.log"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in layout.logs.glob("*.log"))) or "none"
        raise SandboxError(f"{options.component} has no log; there are: {known}")
    return subprocess.run(
        ["tail", *(["-f"] if options.follow else []), "-n", "+1", str(path)], check=False
    ).returncode


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """One command at a time changes a sandbox.

    The lock is an abstract socket: it leaves no file behind, and the kernel frees it however this ends.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        told = False
        while True:
            try:
                lock.bind(f"\0millrace-sandbox-{layout.name}")
                break
            except OSError:
                if not told:
                    progress.console.print(
                        f"another command is at work on sandbox {layout.name!r}; waiting for it"
                    )
                    told = True
                time.sleep(0.5)
        yield


if __name__ == "__main__":
    sys.exit(main())
