"""The parts that agents and their sessions are made of, loaded with the first agent: a program that imports `Agent` may never make one."""

from pathlib import Path
from secrets import token_hex

from ferrule.core.identity import Identity
from ferrule.core.machine import Machine
from ferrule.guard.approval import Approver, NobodyToAsk
from ferrule.guard.gate import Gate, select_mode
from ferrule.guard.rules import RuleSet
from ferrule.guard.workspace import Workspace
from ferrule.models.wire import ModelOptions
from ferrule.store.journal import SqliteJournal
from ferrule.store.paths import journal as journal_file
from ferrule.tools.catalog import Catalog

from .asking import CurrentApprover
from .budgets import seconds_used
from .clock import SystemClock
from .context_options import ContextOptions, look_around
from .dispatcher import Dispatcher
from .driver import Driver
from .prompt import system_text
from .rule_names import check_rule_names
from .session import Session, parse_aims
from .together import Together
from .usable import Usable

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
