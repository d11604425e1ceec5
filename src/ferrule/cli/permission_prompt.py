"""The permission prompt: what would happen, why it asks, and the answers that would be kept.

    1 once      this call only
    2 session   until this session ends; shows the grant
    3 remember  saved in the person's own settings; shows the grant
    4 deny      anything else that is typed is a reason that the model reads

Only grants that would have satisfied the gate are offered, in its order (`2`, then `2b`, `2c`), and
what is granted is what was shown. End of input is a no. The frame around it is drawn by nothing
else (`terminal.visible`), and keys typed before the question stood do not answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from ferrule.permissions.approvals import Answer, ApprovalRequest, Choice

from .terminal import BOTTOM, SIDE, TOP, Terminal

Read = Callable[[str], Awaitable[str]]
"""Asks for a line; raises EOFError at the end of input."""

PREVIEW_LINES = 60
ARGUMENT_CHARACTERS = 600
"""What is shown at first; `v` shows all of it."""

_NUMBERS: dict[Choice, str] = {"once": "1", "session": "2", "remember": "3"}
_MEANS: dict[Choice, str] = {
    "once": "this call only",
    "session": "until this session ends:",
    "remember": "from now on:",
}
_NO = ("4", "n", "no", "deny", "d")
_UNCLEAR = ("y", "yes", "ok", "okay", "sure", "allow", "always")


@dataclass(frozen=True, slots=True)
class Key:
    """What a person may type, and the grant that it stands for."""

    typed: str
    choice: Choice
    rule: str


def keys(request: ApprovalRequest) -> list[Key]:
    """One per offer, in their order; the first of a choice also answers to its word and first
    letter.
    """
    found: list[Key] = []
    for choice, number in _NUMBERS.items():
        rules = [offer.rule for offer in request.offers if offer.choice == choice]
        found += [Key(number + _letter(index), choice, rule) for index, rule in enumerate(rules)]
    return found


def _letter(index: int) -> str:
    return "" if index == 0 else chr(ord("a") + index)


class TerminalApprover:
    """`permissions.approvals.Approver` for a person at a terminal."""

    asks_about_unknown = True

    def __init__(self, terminal: Terminal, read: Read, *, user: str) -> None:
        self._terminal = terminal
        self._read = read
        self._user = user

    async def ask(self, request: ApprovalRequest) -> Answer:
        offered = keys(request)
        with self._terminal.question():
            self._show(request, offered, full=False)
            while True:
                try:
                    typed = (await self._read(f"{BOTTOM} allow? [1-4] ")).strip()
                except EOFError:
                    return Answer("deny", by=self._user, note="denied: no answer was given")
                if typed == "v":
                    self._show(request, offered, full=True)
                elif answer := self._meant(typed, offered):
                    return answer
                else:
                    choices = ", ".join(key.typed for key in offered)
                    self._terminal.frame(
                        SIDE, [(f"hint: type {choices}, 4, or a reason to deny", "dim")]
                    )

    def _meant(self, typed: str, offered: list[Key]) -> Answer | None:
        """What the typed text answers; None if that is not clear."""
        word = typed.lower()
        for key in offered:
            spelled = (key.choice, key.choice[0]) if len(key.typed) == 1 else ()
            if word == key.typed or word in spelled:
                return Answer(key.choice, key.rule, by=self._user)
        if word in _NO:
            return Answer("deny", by=self._user, note="denied by a person")
        if len(word) < 3 or word[0].isdigit() or word in _UNCLEAR:
            return None
        return Answer("deny", by=self._user, note=f"denied by a person: {typed}")

    def _show(self, request: ApprovalRequest, offered: list[Key], *, full: bool) -> None:
        labels = f" · {', '.join(request.labels)}" if request.labels else ""
        head = f"permission: {request.tool.full_name} · risk {request.risk.upper()}{labels}"
        self._terminal.frame(TOP, [(head, "bold yellow")])
        self._terminal.frame(SIDE, _body(request, full=full))
        self._terminal.frame(SIDE, _answers(offered))


def _body(request: ApprovalRequest, *, full: bool) -> Iterator[tuple[str, str]]:
    arguments = request.call.arguments
    cut = 0 if full else max(0, len(arguments) - ARGUMENT_CHARACTERS)
    yield f"arguments: {arguments[: len(arguments) - cut]}", ""
    if cut:
        yield f"… {cut} more characters of arguments; `v` shows all", "bold"
    yield f"why it asks: {request.reason}", ""
    if not request.preview:
        return
    yield "", ""
    lines = request.preview.rstrip("\n").split("\n")
    kept = lines if full else lines[:PREVIEW_LINES]
    yield from (
        (f"  {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")) for line in kept
    )
    if len(kept) < len(lines):
        yield f"… {len(lines) - len(kept)} more lines of what would happen; `v` shows all", "bold"


def _answers(offered: list[Key]) -> Iterator[tuple[str, str]]:
    yield "", ""
    for key in offered:
        said = f"{key.choice:9} {_MEANS[key.choice]}" if len(key.typed) == 1 else f"{'or':>8}"
        yield f"{f'[{key.typed}]':4}{said} {key.rule}".rstrip(), ""
    yield "[4] deny      or type a reason, which the model reads", ""
