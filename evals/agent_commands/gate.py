"""Decide each command as a gate does after one approval of the folder, without running it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits.commands.run_command_tool import run_command
from ferrule.tools.definition import ConfinedHandler, Confinement

HELD = replace(run_command, confined=ConfinedHandler(run_command.handler, lambda run: CONFINEMENT))
HERE = Path(__file__).parent
CONFINEMENT = Confinement(
    ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/os-release", "/proc/cpuinfo"),
    ("/tmp", "/var/tmp"),
)


@dataclass(frozen=True)
class AgentCommand:
    """A command, the folder it starts in, and what a person expects of it, with the reason."""

    command: str
    expect: str
    cwd: str = ""
    why: str = ""
    by: str = "gate"
    known: str = ""


def load_commands() -> list[AgentCommand]:
    """Load the table."""
    return [AgentCommand(**row) for row in yaml.safe_load((HERE / "commands.yaml").read_text())]


def make_gate(root: Path, home: Path) -> PermissionGate:
    """Return a gate with the settings of a terminal, after one approval of all commands."""
    gate = PermissionGate(root=root, home=home, resources={})
    gate.grant(run_command.full_name)
    return gate


def decide(gate: PermissionGate, row: AgentCommand) -> tuple[str, str]:
    """Return `runs`, `asks` or `refused`, and the reason."""
    decision = gate.decide(HELD, {"command": row.command, "cwd": row.cwd})
    words = {"allow": "runs", "ask": "asks", "deny": "refused"}
    return words[decision.verdict], decision.reason
