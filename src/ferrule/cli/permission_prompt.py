"""The permission prompt: show what a call would do and why it asks, and read the answer.

    1 once      this call only
    2 session   until this session ends; shows the grant
    3 remember  saved in the person's own settings; shows the grant
    4 deny      any other text is a reason that the model reads

Only grants that would have satisfied the gate are offered, in its order (`2`, then `2b`, `2c`), and
the grant given is the one that was shown. End of input denies. No other output can draw the frame
of the question (`terminal.visible`), and keys typed before it appeared do not answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import ApprovalChoice
from ferrule.permissions.approval_text import encode_arguments, list_unshown_arguments
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest

from .terminal import BOTTOM, SIDE, TOP, Terminal

ReadLine = Callable[[str], Awaitable[str]]
"""Shows a prompt and reads a line; raises EOFError at the end of input."""

PREVIEW_LINES = 60
ARGUMENT_CHARACTERS = 600
"""How much is shown at first; `v` shows all of it."""

_NUMBERS: dict[ApprovalChoice, str] = {"once": "1", "session": "2", "remember": "3"}
_DESCRIPTIONS: dict[ApprovalChoice, str] = {
    "once": "this call only",
    "session": "until this session ends:",
    "remember": "from now on:",
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_DENIALS = ("4", "n", "no", "deny", "d")
_UNCLEAR = ("y", "yes", "ok", "okay", "sure", "allow", "always")


@frozen
class AnswerKey:
    """An answer that a person can type, and the grant it gives."""

    typed: str
    choice: ApprovalChoice
    rule: str


def answer_keys(request: ApprovalRequest) -> list[AnswerKey]:
    """List the keys for the grants that a request offers, in their order: `1`, `2`, `2b`, `3`."""
    found: list[AnswerKey] = []
    for choice, number in _NUMBERS.items():
        rules = [offer.rule for offer in request.offers if offer.choice == choice]
        for index, rule in enumerate(rules):
            letter = "" if index == 0 else chr(ord("a") + index)
            found.append(AnswerKey(number + letter, choice, rule))
    return found


class TerminalApprover:
    """Asks a person at a terminal for approvals (`permissions.approvals.Approver`)."""

    asks_about_unknown = True

    def __init__(self, terminal: Terminal, read: ReadLine, *, user: str) -> None:
        self._terminal = terminal
        self._read = read
        self._user = user

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Show the request and read lines until one of them is an answer."""
        offered = answer_keys(request)
        with self._terminal.hold_output():
            self._show(request, offered, full=False)
            while True:
                try:
                    typed = (await self._read(f"{BOTTOM} allow? [1-4] ")).strip()
                except EOFError:
                    return ApprovalAnswer("deny", by=self._user, note="denied: no answer was given")
                if typed == "v":
                    self._show(request, offered, full=True)
                elif answer := self._parse_answer(typed, offered):
                    return answer
                else:
                    choices = ", ".join(key.typed for key in offered)
                    self._terminal.draw_frame(
                        SIDE, [(f"hint: type {choices}, 4, or a reason to deny", "dim")]
                    )

    def _parse_answer(self, typed: str, offered: list[AnswerKey]) -> ApprovalAnswer | None:
        """Return the answer that the typed text gives, or None if it is unclear.

        The first key of a choice also matches the name of the choice and its first letter, and
        `always` the only grant that is remembered.
        """
        word = typed.lower()
        remembered = [key for key in offered if key.choice == "remember"]
        if word == "always" and len(remembered) == 1:
            word = remembered[0].typed
        for key in offered:
            names = (key.choice, key.choice[0]) if len(key.typed) == 1 else ()
            if word == key.typed or word in names:
                return ApprovalAnswer(key.choice, key.rule, by=self._user)
        if word in _DENIALS:
            return ApprovalAnswer("deny", by=self._user, note="denied by a person")
        if len(word) < 3 or word[0].isdigit() or word in _UNCLEAR:
            return None
        return ApprovalAnswer("deny", by=self._user, note=f"denied by a person: {typed}")

    def _show(self, request: ApprovalRequest, offered: list[AnswerKey], *, full: bool) -> None:
        labels = f" · {', '.join(request.labels)}" if request.labels else ""
        head = f"permission: {request.tool.full_name} · risk {request.risk.upper()}{labels}"
        self._terminal.draw_frame(TOP, [(head, "bold yellow")])
        self._terminal.draw_frame(SIDE, _body(request, full=full))
        self._terminal.draw_frame(SIDE, _answers(offered, request))


def _body(request: ApprovalRequest, *, full: bool) -> Iterator[tuple[str, str]]:
    # The preview shows what would happen: what it says is not said twice.
    arguments = encode_arguments(request) if full else list_unshown_arguments(request)
    cut = 0 if full else max(0, len(arguments) - ARGUMENT_CHARACTERS)
    shown = arguments[: len(arguments) - cut]
    if shown:
        yield f"arguments: {shown}", ""
    if cut:
        yield f"… {cut} more characters of arguments; `v` shows all", "bold"
    yield f"why it asks: {request.reason}", ""
    if request.preview_error:
        yield request.preview_error, "bold"
    if not request.preview:
        return
    yield "", ""
    lines = request.preview.rstrip("\n").split("\n")
    total = len(lines)
    if not full:
        lines = lines[:PREVIEW_LINES]
    for line in lines:
        yield f"  {line}", _DIFF_STYLES.get(line[:1], "")
    left_out = total - len(lines)
    if left_out:
        yield f"… {left_out} more lines of what would happen; `v` shows all", "bold"


def _describe_grant(rule: str, request: ApprovalRequest) -> str:
    """Return a grant as it is written; one of all commands with what it means."""
    runs_commands = any(touch.kind == "command" for touch in request.tool.touches.values())
    if rule != request.tool.full_name or not runs_commands:
        return rule
    return f"{rule}: every command that the sandbox keeps in this folder"


def _answers(offered: list[AnswerKey], request: ApprovalRequest) -> Iterator[tuple[str, str]]:
    yield "", ""
    for key in offered:
        label = f"[{key.typed}]"
        description = f"{'or':>8}"
        if len(key.typed) == 1:
            description = f"{key.choice:9} {_DESCRIPTIONS[key.choice]}"
        yield f"{label:4}{description} {_describe_grant(key.rule, request)}".rstrip(), ""
    yield "[4] deny      or type a reason, which the model reads", ""
