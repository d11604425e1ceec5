"""The permission prompt: show what a call would do and why it asks, and read the answer.

    1 once      this call only
    2 session   until this session ends; shows the grant
    3 remember  saved in the person's own settings; shows the grant
    4 deny      any other text is a reason that the model reads
    5 mode      `sandboxed` from now on: what the sandbox holds runs unasked, edits too

What does not fit is shown page by page, and a yes counts once all of it was shown: a call must not
run what nobody saw. Only grants that would have satisfied the gate are offered, in its order (`2`,
then `2b`, `2c`), and the grant given is the one that was shown. End of input denies. No other
output can draw the frame of the question (`terminal.visible`), and keys typed before it appeared do
not answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import ApprovalChoice
from ferrule.permissions.approval_text import encode_arguments, list_unshown_arguments
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.tools.definition import SideEffect

from .terminal import BOTTOM, SIDE, TOP, Terminal, count_screen_rows, wrap_frame

ReadLine = Callable[[str], Awaitable[str]]
"""Shows a prompt and reads a line; raises EOFError at the end of input."""

Page = list[tuple[str, str]]
"""Rows of the screen, with their styles."""

PAGE_ROWS = 60
"""Rows that are shown at a time; of what runs no more than fit on the screen."""
_FEWEST_ROWS = 3
"""Rows that are shown at a time however small the screen is."""

_NUMBERS: dict[ApprovalChoice, str] = {"once": "1", "session": "2", "remember": "3", "mode": "5"}
_DESCRIPTIONS: dict[ApprovalChoice, str] = {
    "once": "this call only",
    "session": "until this session ends:",
    "remember": "from now on:",
    "mode": "from now on, unasked: edits here, and commands that the sandbox holds",
}
_MEANINGS = (
    ("Edit(", "/**)", "every edit below that folder"),
    ("Read(", "/**)", "every read below that folder"),
    ("Bash(", ":*)", "every command that begins like this"),
    ("WebFetch(", ")", "every address of that host"),
)
"""What a rule with this start and this end means."""
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
            unseen = self._begin(request, offered)
            while True:
                try:
                    typed = (await self._read(f"{BOTTOM} allow? {_range_of(offered)} ")).strip()
                except EOFError:
                    note = "denied: no answer was given"
                    return ApprovalAnswer("deny", by=self._user, note=note, refused_by="nobody")
                answer = self._parse_answer(typed, offered)
                if typed == "v":
                    self._show_all(request, offered)
                    unseen = []
                elif unseen and (not typed or (answer is not None and answer.choice != "deny")):
                    unseen = self._show_next(unseen, offered, request)
                elif answer:
                    return answer
                else:
                    choices = ", ".join(sorted([*(key.typed for key in offered), "4"]))
                    self._terminal.draw_frame(
                        SIDE, [(f"hint: type {choices}, or a reason to deny", "dim")]
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

    def _begin(self, request: ApprovalRequest, offered: list[AnswerKey]) -> list[Page]:
        """Show the question with the first page of what would happen. Return the other pages."""
        self._show_head(request)
        first, *others = _split_pages(request, offered)
        self._terminal.draw_rows(SIDE, first)
        self._show_answers(offered, request, others)
        return others

    def _show_next(
        self, pages: list[Page], offered: list[AnswerKey], request: ApprovalRequest
    ) -> list[Page]:
        """Show the next page; a yes counts once there is none. Return those after it."""
        first, *others = pages
        self._terminal.draw_rows(SIDE, first)
        self._show_answers(offered, request, others)
        return others

    def _show_all(self, request: ApprovalRequest, offered: list[AnswerKey]) -> None:
        """Show the question with everything that it is about, all arguments included."""
        self._show_head(request)
        self._terminal.draw_frame(SIDE, _body(request, full=True))
        self._show_answers(offered, request, [])

    def _show_head(self, request: ApprovalRequest) -> None:
        self._terminal.draw_frame(TOP, [_head(request)])

    def _show_answers(
        self, offered: list[AnswerKey], request: ApprovalRequest, unseen: list[Page]
    ) -> None:
        if unseen:
            self._terminal.draw_frame(SIDE, [_describe_rest(sum(map(len, unseen)))])
        self._terminal.draw_frame(SIDE, _answers(offered, request))


def _head(request: ApprovalRequest) -> tuple[str, str]:
    labels = f" · {', '.join(request.labels)}" if request.labels else ""
    name = request.tool.full_name
    return f"permission: {name} · risk {request.risk.upper()}{labels}", "bold yellow"


def _describe_rest(rows: int) -> tuple[str, str]:
    what = f"… {rows} more lines of what would happen, to see before a yes counts"
    return f"{what}; Enter shows the next, `v` all", "bold"


def _split_pages(request: ApprovalRequest, offered: list[AnswerKey]) -> list[Page]:
    """Split what a request shows into pages, of which the first stands above the answers.

    A page of what runs fits on the screen with the frame around it: nothing that one key would run
    has left it.
    """
    rows = wrap_frame(_body(request, full=False))
    size = PAGE_ROWS
    if _runs_something(request):
        around = [_head(request), _describe_rest(len(rows)), *_answers(offered, request)]
        # One row is the prompt's, and one what was drawn before the question.
        left = count_screen_rows() - len(wrap_frame(around)) - 2
        size = max(_FEWEST_ROWS, min(size, left))
    return [rows[start : start + size] for start in range(0, len(rows), size)] or [[]]


def _runs_something(request: ApprovalRequest) -> bool:
    touches = request.tool.touches.values()
    return request.tool.side_effect is SideEffect.EXECUTE or any(
        touch.kind == "command" for touch in touches
    )


def _body(request: ApprovalRequest, *, full: bool) -> Iterator[tuple[str, str]]:
    # The preview shows what would happen: what it says is not said twice.
    arguments = encode_arguments(request) if full else list_unshown_arguments(request)
    if arguments:
        yield f"arguments: {arguments}", ""
    yield f"why it asks: {request.reason}", ""
    if request.preview_error:
        yield request.preview_error, "bold"
    if not request.preview:
        return
    yield "", ""
    for line in request.preview.rstrip("\n").split("\n"):
        yield f"  {line}", _DIFF_STYLES.get(line[:1], "")


def _describe_grant(rule: str, request: ApprovalRequest) -> str:
    """Return a grant as it is written, with what it means if it is about more than this call."""
    runs_commands = any(touch.kind == "command" for touch in request.tool.touches.values())
    if rule == request.tool.full_name and runs_commands:
        return f"{rule}: every command that the sandbox keeps in this folder"
    for start, end, meaning in _MEANINGS:
        if rule.startswith(start) and rule.endswith(end):
            return f"{rule}: {meaning}"
    return rule


def _answers(offered: list[AnswerKey], request: ApprovalRequest) -> Iterator[tuple[str, str]]:
    yield "", ""
    for key in offered:
        if key.choice != "mode":
            yield _describe_answer(key, request), ""
    yield "[4] deny      or type a reason, which the model reads", ""
    for key in offered:
        if key.choice == "mode":
            yield f"[{key.typed}] {key.rule:9} {_DESCRIPTIONS[key.choice]}", ""


def _describe_answer(key: AnswerKey, request: ApprovalRequest) -> str:
    label = f"[{key.typed}]"
    description = f"{'or':>8}"
    if len(key.typed) == 1:
        description = f"{key.choice:9} {_DESCRIPTIONS[key.choice]}"
    return f"{label:4}{description} {_describe_grant(key.rule, request)}".rstrip()


def _range_of(offered: list[AnswerKey]) -> str:
    return "[1-5]" if any(key.choice == "mode" for key in offered) else "[1-4]"
