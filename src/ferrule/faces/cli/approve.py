"""The permission prompt: what would happen, why it asks, and the answers that would be kept.

    1 once      this call only
    2 session   until this session ends; shows the grant
    3 remember  saved in the person's own settings; shows the grant
    4 deny      anything else that is typed is a reason that the model reads

Only grants that would have satisfied the gate are offered. End of input is a no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ferrule.guard.approval import Answer, ApprovalRequest, Choice

from .terminal import Terminal

Read = Callable[[str], Awaitable[str]]
"""Asks for a line; raises EOFError at the end of input."""

_KEYS: tuple[tuple[str, Choice], ...] = (("1", "once"), ("2", "session"), ("3", "remember"))


class TerminalApprover:
    """`guard.approval.Approver` for a person at a terminal."""

    def __init__(self, terminal: Terminal, read: Read, *, user: str) -> None:
        self._terminal = terminal
        self._read = read
        self._user = user

    async def ask(self, request: ApprovalRequest) -> Answer:
        self._show(request)
        offers = {offer.choice: offer.rule for offer in request.offers}
        keys = {key: choice for key, choice in _KEYS if choice in offers}
        while True:
            try:
                typed = (await self._read("allow? [1-4] ")).strip()
            except EOFError:
                return Answer("deny", by=self._user, note="denied: no answer was given")
            choice = keys.get(typed) or next(
                (c for c in keys.values() if typed and c.startswith(typed.lower())), None
            )
            if choice is not None:
                return Answer(choice, offers[choice], by=self._user)
            if typed in ("4", "n", "no", "deny", "d"):
                return Answer("deny", by=self._user, note="denied by a person")
            if typed and not typed.isdigit():
                return Answer("deny", by=self._user, note=f"denied by a person: {typed}")
            self._terminal.say(f"hint: type {', '.join(keys)}, 4, or a reason to deny")

    def _show(self, request: ApprovalRequest) -> None:
        say = self._terminal.say
        labels = f"  [{', '.join(request.labels)}]" if request.labels else ""
        say("")
        say(
            f"? permission: {request.tool.full_name}  risk {request.risk.upper()}{labels}",
            style="bold yellow",
        )
        say(f"  arguments: {request.call.arguments}")
        say(f"  why it asks: {request.reason}")
        if request.preview:
            self._terminal.diff(request.preview)
        for key, choice in _KEYS:
            rule = next((offer.rule for offer in request.offers if offer.choice == choice), None)
            if rule is not None:
                kept = f": {rule}" if rule and choice != "once" else ""
                say(f"  [{key}] {choice}{kept}")
        say("  [4] deny (or type a reason)")
