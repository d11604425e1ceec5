"""The parts that agents and their sessions are made of, loaded with the first agent: a program that
imports `Agent` may never make one.
"""

from pathlib import Path
from secrets import token_hex

from ferrule.core.identity import Identity
from ferrule.core.machine import Machine
from ferrule.models.client import ModelOptions
from ferrule.permissions.approvals import Approver, NobodyToAsk
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.gate import Gate, select_mode
from ferrule.permissions.rules import RuleSet
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import journal as journal_file
from ferrule.tools.catalog import Catalog

from .approval_requests import CurrentApprover
from .available_tools import Usable
from .budgets import seconds_used
from .clock import SystemClock
from .context.options import ContextOptions, look_around
from .dispatcher import Dispatcher
from .driver import Driver
from .prompt import system_text
from .rule_names import check_rule_names
from .session import Session, parse_aims
from .write_batching import Together

__all__ = [
    "Approver",
    "Catalog",
    "ContextOptions",
    "CurrentApprover",
    "Dispatcher",
    "Driver",
    "Gate",
    "Identity",
    "Machine",
    "ModelOptions",
    "NobodyToAsk",
    "Path",
    "RuleSet",
    "Session",
    "SqliteJournal",
    "SystemClock",
    "Together",
    "Usable",
    "Workspace",
    "check_rule_names",
    "journal_file",
    "look_around",
    "parse_aims",
    "seconds_used",
    "select_mode",
    "system_text",
    "token_hex",
]
