"""A machine in small: a person's home with secrets, and a workspace that came from a stranger."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from ferrule import Agent, Permissions
from ferrule.models.scripted import Scripted
from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits import commands
from ferrule.toolkits.files import tools as files
from ferrule.tools.definition import CheckedArguments, Risk, SideEffect, Tool, Touch


@dataclass(frozen=True)
class Machine:
    """`root` is the workspace, in the person's `home`; every secret holds `canary`."""

    home: Path
    root: Path
    canary: str

    def run(self, script: str, **variables: str) -> str:
        """What a command prints under the default policy, on the best backend."""
        return asyncio.run(self._run(script, variables))

    async def _run(self, script: str, variables: dict[str, str]) -> str:
        policy = SandboxPolicy(self.root)
        if not available_backends(policy, probe()):
            pytest.skip(f"this machine confines no commands: {dict(probe().why)}")
        kept = Capture(1 << 20, 1 << 20)
        environment = filter_environment(
            {**os.environ, "HOME": str(self.home), **variables},
            overrides={"PWD": str(self.root)},
        ).values
        sandbox = Sandbox(policy)
        directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await sandbox.run(
                Command(
                    ("sh", "-c", script),
                    program=shutil.which("sh") or "/bin/sh",
                    directory=directory,
                    environment=environment,
                    output=kept,
                    timeout=20,
                )
            )
        finally:
            os.close(directory)
            await sandbox.close()
        return kept.text()


@contextmanager
def build_machine() -> Iterator[Machine]:
    """Make the machine, and remove it afterwards."""
    # Not below /tmp: commands have a folder of their own there.
    base = Path(tempfile.mkdtemp(prefix="ferrule-field-", dir=Path.home())).resolve()
    built = Machine(base / "home", base / "home/work/project", f"cnry{token_hex(8)}")
    for name in (
        ".ssh/id_ed25519",
        ".config/gh/hosts.yml",
        ".aws/credentials",
        ".local/share/ferrule/notes",
        "diary.txt",
    ):
        place = built.home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{built.canary}\n")
    built.root.mkdir(parents=True)
    (built.root / "README.md").write_text("A project\n")
    try:
        yield built
    finally:
        shutil.rmtree(base)


class _Anything:
    schema = {"type": "object"}  # noqa: RUF012

    def check(self, arguments: dict[str, object]) -> CheckedArguments:
        return CheckedArguments(dict(arguments), [], [])


RUN = Tool(
    name="run_command",
    description="Run a command.",
    arguments=_Anything(),
    handler=lambda: None,
    risk=Risk.HIGH,
    side_effect=SideEffect.EXECUTE,
    touches={"command": Touch("command")},
)


def decide(command: str, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> str:
    rules = RuleSet.parse(allow=allow, deny=deny)
    gate = PermissionGate(rules, root=Path("/work/project"), home=Path("/home/person"))
    return gate.decide(RUN, {"command": command}).verdict


def make_agent(
    machine: Machine,
    *more: Tool,
    model: Scripted | None = None,
    permissions: Permissions | None = None,
    **options: Any,
) -> Agent:
    """An agent that asks nothing, with the tools for files and commands and some more."""
    return Agent(
        model or Scripted([]),
        [*files.TOOLS, *commands.TOOLS, *more],
        workspace=machine.root,
        permissions=permissions or Permissions(mode="bypassPermissions"),
        **options,
    )


def read_home(machine: Machine) -> dict[str, str]:
    """Every file of the home outside of the workspace."""
    found = (place for place in machine.home.rglob("*") if place.is_file())
    outside = (place for place in found if not place.is_relative_to(machine.root))
    return {str(place): place.read_text() for place in outside}
