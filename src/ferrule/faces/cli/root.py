"""The command table and the way from an exception to an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 finished but the last tool result was a failure, 4 denied by policy,
5 limit reached, 6 provider unavailable, 7 needs input, 124 timeout, 130 SIGINT, 143 SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any

import click

from ferrule._version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Work one message to its end and print the answer."),
    "chat": ("chat:chat", "Talk with a model that works in this folder."),
    "tools": ("tools:tools", "List the tools, show one, call one; check, test and write tool files."),
    "skills": ("skills:skills", "List the skills, show one, check that all are well made."),
    "mcp": ("mcp:mcp", "List, approve and test MCP servers, sign in to them."),
    "a2a": ("a2a:a2a", "List, approve and test agents that speak A2A."),
    "policy": ("policy:policy", "Explain, test and check permission rules."),
    "models": ("models:models", "List, probe and pull models."),
    "sessions": ("sessions:sessions", "List, show, resume, export, verify and archive sessions."),
    "audit": ("audit:audit", "Prove what calls did: verify, explain, export, sign."),
    "submit": ("scale:submit", "Hand a message in as a job for workers."),
    "worker": ("scale:worker", "Work jobs of the queue, beside others."),
    "validate": ("validate:validate", "Check all that this folder brings: settings, rules, tools, hooks."),
    "trust": ("trust:trust", "Let this folder's own settings take effect, or stop them."),
    "doctor": ("doctor:doctor", "Say what this machine can do and what is missing."),
    "init": ("init:init", "Write a commented settings file into this folder."),
    "completion": ("completion:completion", "Print shell completion for bash, zsh or fish."),
}
"""Command name to `module:object` in this package and its line of help. Help loads nothing else."""


class LazyGroup(click.Group):
    """Loads a command's module when it is called, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        return getattr(import_module(f"ferrule.faces.cli.{module}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0][:1] != "-":
            raise click.UsageError(_no_command(args[0]), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from .terminal import drop_output

            # The reader went away (`| head`): nobody is left to tell. click would call it a failure.
            drop_output()
            return 0


def _no_command(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, 2, 0.5)
    meant = " or ".join(f"`{one}`" for one in near)
    return f"there is no command `{name}`" + (f"; did you mean {meant}?" if near else "")


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, message="ferrule %(version)s")
def ferrule() -> None:
    """Language models that use tools in this folder, safely.

    `ferrule run "..."` answers one question; `ferrule chat` is a conversation. Nothing is written and no
    program is run without a rule or a person that allows it.
    """


def run(arguments: list[str]) -> int:
    """Run the command line; the exit code. Errors go to standard error with a hint, never a traceback
    (set FERRULE_TRACEBACK=1 for one)."""
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
    else:
        detail = f"a defect in Ferrule: {type(error).__name__}: {error}"
        hint, code = "FERRULE_TRACEBACK=1 shows where; please report it", 1
    sys.stderr.write(f"error: {visible(detail)}\n" + (f"hint: {visible(hint)}\n" if hint else ""))
    return code


def _terminated(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
