"""The command table and the way from an exception to an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 finished but the last tool result was a failure, 4 denied
by policy, 5 limit reached, 6 provider unavailable, 7 needs input, 124 timeout, 130 SIGINT, 143
SIGTERM.
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
from ferrule.runtime.lazy_group import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("ferrule.cli.run.command:run", "Work one message to its end and print the answer."),
    "chat": ("ferrule.cli.chat.command:chat", "Talk with a model that works in this folder."),
    "tools": (
        "ferrule.cli.tools.command:tools",
        "List the tools, show one, call one; check, test and write tool files.",
    ),
    "skills": (
        "ferrule.cli.skills:skills",
        "List the skills, show one, check that all are well made.",
    ),
    "mcp": ("ferrule.cli.mcp:mcp", "List, approve and test MCP servers, sign in to them."),
    "a2a": ("ferrule.cli.a2a:a2a", "List, approve and test agents that speak A2A."),
    "policy": ("ferrule.cli.policy:policy", "Explain, test and check permission rules."),
    "models": ("ferrule.cli.models:models", "List, probe and pull models."),
    "sessions": (
        "ferrule.cli.sessions.command:sessions",
        "List, show, resume, export, verify and archive sessions.",
    ),
    "audit": (
        "ferrule.cli.sessions.audit:audit",
        "Prove what calls did: verify, explain, export, sign.",
    ),
    "submit": ("ferrule.cli.distributed:submit", "Hand a message in as a job for workers."),
    "worker": ("ferrule.cli.distributed:worker", "Work jobs of the queue, beside others."),
    "validate": (
        "ferrule.cli.validate:validate",
        "Check all that this folder brings: settings, rules, tools, hooks.",
    ),
    "serve": (
        "ferrule.servers.command:serve",
        "Serve tools and agents: MCP, ACP, A2A, OpenAI, web console.",
    ),
    "trust": (
        "ferrule.cli.trust:trust",
        "Let this folder's own settings take effect, or stop them.",
    ),
    "doctor": (
        "ferrule.cli.doctor.command:doctor",
        "Say what this machine can do and what is missing.",
    ),
    "init": (
        "ferrule.cli.init.command:init",
        "Make an agent project, or only a commented settings file.",
    ),
    "completion": (
        "ferrule.cli.completion:completion",
        "Print shell completion for bash, zsh or fish.",
    ),
}
"""Command name to its `module:object` and its line of help. Help loads nothing else."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="ferrule %(version)s")
def ferrule() -> None:
    """Language models that use tools in this folder, safely.

    `ferrule run "..."` answers one question; `ferrule chat` is a conversation. Nothing is written
    and no program is run without a rule or a person that allows it.
    """


def run(arguments: list[str]) -> int:
    """Run the command line; the exit code. Errors go to standard error with a hint, never a
    traceback (set FERRULE_TRACEBACK=1 for one).
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
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
    from ferrule.core.errors import FerruleError

    from .terminal import visible

    if os.environ.get("FERRULE_TRACEBACK"):
        raise error
    if isinstance(error, FerruleError):
        detail, hint, code = error.detail, error.hint, error.exit_code
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EPIPE, errno.EIO):
        # What could not be written is what was to be shown: everything that is kept has errors of
        # its own.
        detail = f"the output could not be written: {error.strerror}"
        hint, code = "look at where it goes (a full disk, a closed pipe)", 1
    else:
        detail = f"a defect in Ferrule: {type(error).__name__}: {error}"
        hint, code = "FERRULE_TRACEBACK=1 shows where; please report it", 1
    sys.stderr.write(f"error: {visible(detail)}\n" + (f"hint: {visible(hint)}\n" if hint else ""))
    return code


def _terminated(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
