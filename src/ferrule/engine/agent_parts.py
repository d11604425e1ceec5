"""What an agent is made of, loaded with the first agent: a program that imports `Agent` may never
make one.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from secrets import token_hex

from ferrule.models.client import ModelOptions
from ferrule.permissions.approvals import NobodyToAsk
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.gate import Gate, select_mode
from ferrule.permissions.rules import RuleSet
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import journal as journal_file
from ferrule.tools.catalog import Catalog

from .agent_options import Permissions
from .budgets import seconds_used
from .clock import SystemClock
from .context.options import ContextOptions
from .model_connection import ModelConnection
from .offered_tools import OfferedTools
from .prompt import system_text
from .rule_names import check_rule_names
from .session import parse_aims

__all__ = [
    "Catalog",
    "ContextOptions",
    "ModelConnection",
    "ModelOptions",
    "NobodyToAsk",
    "OfferedTools",
    "Path",
    "SqliteJournal",
    "SystemClock",
    "Workspace",
    "gate_of",
    "journal_file",
    "parse_aims",
    "seconds_used",
    "system_text",
    "system_user",
    "token_hex",
]


def gate_of(permissions: Permissions, catalog: Catalog, workspace: Workspace | None) -> Gate:
    """Return the gate of these rules. Raises ConfigError for one that names no tool."""
    root = workspace.root if workspace else None
    rules = RuleSet.of(
        allow=permissions.allow, ask=permissions.ask, deny=permissions.deny, root=str(root or "")
    )
    check_rule_names(rules, catalog)
    return Gate(rules, mode=select_mode(permissions.mode, "flags"), root=root)


def system_user() -> str:
    """Return the name of the user that this process runs as."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
