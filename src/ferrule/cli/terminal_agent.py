"""An agent with a person at the terminal: who is asked, and where notices go."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from ferrule.permissions.approvals import AllowThese, Approver, NobodyToAsk
from ferrule.runtime.assemble import Assembly, assemble, person

from .line_input import read_line
from .permission_prompt import TerminalApprover
from .terminal import Terminal


@dataclass(slots=True)
class Seated(Assembly):
    """An assembly and the terminal it talks to."""

    terminal: Terminal = field(kw_only=True)


def seat(options: dict[str, Any], *, interruptible: bool = False) -> Seated:
    """`assemble` for whoever sits at this terminal; nobody is asked where there is none. Raises
    ConfigError.
    """
    terminal = Terminal(quiet=bool(options.get("quiet")))

    def notice(text: str) -> None:
        terminal.say(f"! {text}", style="yellow")

    made = assemble(
        options, notice=notice, approver=_approver(options, terminal), interruptible=interruptible
    )
    brought = (made.extensions, made.servers, made.peers, made.signer)
    return Seated(made.agent, made.settings, notice, *brought, terminal=terminal)


def _approver(options: dict[str, Any], terminal: Terminal) -> Approver:
    asked: Approver = NobodyToAsk()
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        asked = TerminalApprover(terminal, read_line, user=person())
    yes_to = tuple(options.get("yes_to") or ())
    return AllowThese(yes_to, asked) if yes_to else asked
