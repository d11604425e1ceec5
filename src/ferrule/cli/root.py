"""The table of commands, and how an exception becomes a message and an exit code.

Exit codes: 0 done, 1 failed, 2 usage error, 3 finished but the last tool result was a failure, 4
denied by policy, 5 limit reached, 6 provider unavailable, 7 needs input, 124 timeout, 130 SIGINT,
143 SIGTERM.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from typing import Any

import click

from ferrule._version import __version__
from ferrule.core.errors import FerruleError
from ferrule.runtime.lazy_group import LazyGroup

from .terminal import escape_invisible

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("ferrule.cli.run.command:run", "Answer one message and exit."),
    "chat": ("ferrule.cli.chat.command:chat", "Chat with a model that works in this folder."),
    "setup": (
        "ferrule.cli.setup.command:setup",
        "Choose the model that is used when none is named.",
    ),
    "tools": (
        "ferrule.cli.tools.command:tools",
        "List, show and call tools; check, test and write tool files.",
    ),
    "skills": (
        "ferrule.cli.skills:skills",
        "List, show and check skills.",
    ),
    "mcp": ("ferrule.cli.mcp:mcp", "List, approve, test and sign in to MCP servers."),
    "a2a": ("ferrule.cli.a2a:a2a", "List, approve and test A2A agents."),
    "policy": ("ferrule.cli.policy:policy", "Explain, test and check permission rules."),
    "models": ("ferrule.cli.models:models", "List, probe and pull models."),
    "sessions": (
        "ferrule.cli.sessions.command:sessions",
        "List, show, resume, export, verify and archive sessions.",
    ),
    "eval": (
        "ferrule.cli.eval:evaluate",
        "Run cases by models, count what passes, compare two reports.",
    ),
    "audit": (
        "ferrule.cli.sessions.audit:audit",
        "Verify, explain, export and sign the record of tool calls.",
    ),
    "submit": ("ferrule.cli.distributed:submit", "Submit a message as a job for workers."),
    "worker": ("ferrule.cli.distributed:worker", "Run jobs from a shared queue."),
    "validate": (
        "ferrule.cli.validate:validate",
        "Check this folder's settings, rules, tools and hooks.",
    ),
    "serve": (
        "ferrule.servers.command:serve",
        "Serve tools and agents over MCP, ACP, A2A, AG-UI, OpenAI or a console.",
    ),
    "trust": (
        "ferrule.cli.trust:trust",
        "Trust this folder's own settings, rules and tools, or revoke that.",
    ),
    "doctor": (
        "ferrule.cli.doctor.command:doctor",
        "Report what this machine supports and what is missing.",
    ),
    "import": (
        "ferrule.cli.imports.command:import_",
        "Take over settings, agents, commands and servers of Claude Code.",
    ),
    "init": (
        "ferrule.cli.init.command:init",
        "Create an agent project, or only a commented settings file.",
    ),
    "completion": (
        "ferrule.cli.completion:completion",
        "Print shell completion for bash, zsh or fish.",
    ),
}
"""Command name -> (`module:object`, one line of help). Listing the commands loads none of them."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="ferrule %(version)s")
def ferrule() -> None:
    """Let language models use tools in this folder, safely.

    `ferrule run "..."` answers one message; `ferrule chat` is a conversation. A model writes files
    and runs programs only where a permission rule or a person allows it.
    """


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code.

    Errors go to standard error with a hint, without a traceback (set FERRULE_TRACEBACK=1 to get
    one).
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        outcome = ferrule.main(arguments, prog_name="ferrule", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001  boundary: people get a sentence, not a traceback
        return _report(error)
    return outcome if isinstance(outcome, int) else 0


def _report(error: Exception) -> int:
    """Print an error with its hint. Return the exit code."""
    if os.environ.get("FERRULE_TRACEBACK"):
        raise error
    if isinstance(error, FerruleError):
        detail, hint, code = error.detail, error.hint, error.exit_code
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EPIPE, errno.EIO):
        # Only the output itself: writing to the journal or to files raises errors of its own.
        detail = f"the output could not be written: {error.strerror}"
        hint = "check where it goes: the disk may be full, or the pipe closed"
        code = 1
    else:
        detail = f"a defect in Ferrule: {type(error).__name__}: {error}"
        hint = "set FERRULE_TRACEBACK=1 to see where, and please report it"
        code = 1
    sys.stderr.write(f"error: {escape_invisible(detail)}\n")
    if hint:
        sys.stderr.write(f"hint: {escape_invisible(hint)}\n")
    return code


def _exit_on_signal(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
