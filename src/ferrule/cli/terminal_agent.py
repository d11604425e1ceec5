"""Build an agent for a person at the terminal, who is asked for approvals and sees notices."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.rule_names import find_tool_problem
from ferrule.permissions.approvals import AllowlistApprover, Approver, DenyingApprover
from ferrule.runtime.assemble import Assembly, assemble, current_user
from ferrule.runtime.lazy_imports import lazy_imports

from .confirmation import has_terminal
from .line_input import read_line
from .permission_prompt import TerminalApprover
from .terminal import Terminal

with lazy_imports():
    from ferrule.engine.registration import registration


@dataclass(slots=True)
class TerminalAssembly(Assembly):
    """An assembly, and the terminal that its notices and questions go to."""

    terminal: Terminal = field(kw_only=True)


def assemble_at_terminal(
    options: dict[str, Any],
    *,
    interruptible: bool = False,
    needs_model: bool = True,
    terminal: Terminal | None = None,
) -> TerminalAssembly:
    """Assemble an agent for the person at this terminal. Without a terminal nobody is asked.

    Args:
        options: The options of the command.
        interruptible: Whether single tool calls can be stopped.
        needs_model: Whether a model will be asked.
        terminal: Where output goes; by default a plain one.

    Raises:
        ConfigError: A setting is wrong (see `assemble`).
    """
    if terminal is None:
        terminal = Terminal(quiet=bool(options.get("quiet")))

    write_message = terminal.write_message

    def notice(text: str) -> None:
        write_message(f"! {text}", style="yellow")

    assembly = assemble(
        options,
        notice=notice,
        approver=_approver(options, terminal),
        interruptible=interruptible,
        needs_model=needs_model,
    )
    for name in options.get("yes_to") or ():
        known = [tool.full_name for tool in assembly.agent.catalog]
        if "__" not in name and not any(fnmatchcase(one, name) for one in known):
            detail, hint = find_tool_problem(name, known)

            if name in registration.REGISTRATION_TOOLS:
                hint = "set `tools.register` to true in your own settings to offer it"
            raise ConfigError(f"--yes-to: {detail}", code="tool_unknown", hint=hint)
    parts = {part.name: getattr(assembly, part.name) for part in fields(assembly)}
    return TerminalAssembly(**parts, terminal=terminal)


def _is_attended() -> bool:
    """Whether a person sees what is written, and can answer."""
    return has_terminal() and sys.stderr.isatty()


def _approver(options: dict[str, Any], terminal: Terminal) -> Approver:
    approver: Approver = DenyingApprover()
    if _is_attended():
        approver = TerminalApprover(terminal, read_line, user=current_user())
    allowed = tuple(options.get("yes_to") or ())
    return AllowlistApprover(allowed, approver) if allowed else approver
