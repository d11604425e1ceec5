"""What the sandbox refused a command: said in its result, and asked of a person who can open it.

Three sources, which are not trusted alike:

* what the sandbox saw itself (`CommandResult.refusals`, a program out of sight): said, and asked;
* what a command prints of files that it cannot see or write: said only. Anybody can write such a
  text, a file that is printed too, so nobody is asked because of it;
* whether a refused write is why the command failed: only if its output names it.

What is said depends on the text and on what commands see, never on what else is on the machine.
A question names exactly what would be opened, in words of ours. It goes to the session's approver,
after the gate's deny rules, and its answer is in the journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    digest_arguments,
    make_question_tool,
)
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.permissions.provenance import explain_own_code
from ferrule.sandbox.command import Refusal
from ferrule.sandbox.openings import Opening, find_opening, may_be_opened
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import Context
from ferrule.tools.definition import READS, URL, WRITES, Risk, SideEffect

from .plan import make_printable

_MAX_SAID = 5
"""Refusals that one result names."""
_MAX_LINES = 400
_MAX_COMMAND = 400
"""Characters of a command that a question shows; the arguments of its call were shown before."""
_PATHS = compile_lazily(
    r"(?<=['\"`‘“])\.{0,2}/[^'\"`‘’“”]+(?=['\"`’”])|"
    r"(?<=: )\.{0,2}/(?:(?!\s/)[^'\"`‘’“”:])+(?=: )|"
    r"(?<!\w)(?:/|\.\.?/|\.(?=\w))[^\s'\"`‘’“”:;,<>|()\[\]{}*?]+"
)
"""A path in quotes or between colons, which may have blanks, or one without.

None begins within a word.
"""
_UNSEEN = compile_lazily(
    r"no such file|not found|cannot find|(?-i:\bENOENT\b)|os error 2\b", re.IGNORECASE
)
_UNWRITABLE = compile_lazily(r"read-only file system|(?-i:\bEROFS\b)|os error 30\b", re.IGNORECASE)
_CLOSED = compile_lazily(r"permission denied|(?-i:\bEACCES\b)|os error 13\b", re.IGNORECASE)
_NO_HOST = compile_lazily(
    r"could not resolve|name resolution|name or service not known|network is unreachable|"
    r"no such host|(?-i:\bENOTFOUND|EAI_AGAIN|ENETUNREACH)\b",
    re.IGNORECASE,
)
_SESSION_FOLDERS = ("/tmp/", "/var/tmp/", "/dev/", "/proc/", "/sys/", "/run/")
"""Folders of which commands have their own, or a part: what is missing there is theirs to make."""


# ---- what is said


def describe_refusals(
    refusals: Iterable[Refusal], output: str, sandbox: Sandbox, folder: str, *, failed: bool
) -> list[str]:
    """Describe what the sandbox refused a command, a sentence each, with the line that opens it.

    Args:
        refusals: What the sandbox saw.
        output: The end of what the command printed.
        sandbox: The sandbox that it ran in.
        folder: The folder that it started in, absolute.
        failed: Whether it failed: then what its output names is explained as well.
    """
    policy = sandbox.policy
    found: dict[str, None] = {}
    refused = list(refusals)
    for refusal in refused:
        if refusal.access == "network":
            found[_describe_host(refusal)] = None
        elif refusal.is_final:
            shown = make_printable(refusal.target)
            left = "not shown" if refusal.access == "read" else "read-only"
            found[f"`{shown}` was opened for commands and is {left}: {refusal.why}"] = None
        elif failed and _is_named(refusal.target, output):
            found[_describe_write(refusal.target, policy)] = None
    if failed:
        found |= dict.fromkeys(_explain_output(output, sandbox, policy, folder))
        if not any(refusal.access == "network" for refusal in refused) and _NO_HOST.search(output):
            found[
                "commands reach no host but through the proxy of the sandbox, which HTTP programs "
                "find by HTTPS_PROXY; hosts are named by the setting `sandbox.network`"
            ] = None
    return list(found)[:_MAX_SAID]


def _describe_host(refusal: Refusal) -> str:
    said = (
        f"the sandbox refused a connection to `{make_printable(refusal.target)}`: "
        f"{make_printable(refusal.why)}"
    )
    return said if refusal.is_final else f"{said}; {_cure('network', refusal.target)}"


def _describe_write(path: str, policy: SandboxPolicy) -> str:
    shown = make_printable(path)
    own_code = explain_own_code(path, policy.command_writable)
    if own_code:
        return f"the sandbox refused to write `{shown}`: {own_code}"
    inside = _name_inside(path, policy)
    if inside is not None:
        why = policy.names.check(inside, write=True)
        return f"the sandbox refused to write `{shown}`: {why or 'it is read-only for commands'}"
    folder = str(Path(path).parent)
    return (
        f"the sandbox refused to write `{shown}`: it is out of sight or read-only for commands; "
        f"{_cure('writable', folder)}"
    )


def _cure(key: str, target: str) -> str:
    """Return who opens it, and by which line."""
    line = make_printable(f"sandbox: {{{key}: {encode_json([target])}}}")
    return f"a person opens it by writing `{line}` into their own settings"


def _explain_output(
    output: str, sandbox: Sandbox, policy: SandboxPolicy, folder: str
) -> Iterator[str]:
    """Explain lines of an output that name a file which commands cannot see or write."""
    home = os.path.realpath(Path.home())
    for line in output.splitlines()[-_MAX_LINES:]:
        is_unseen = _UNSEEN.search(line) is not None
        if not is_unseen and not _UNWRITABLE.search(line) and not _CLOSED.search(line):
            continue
        for text in _PATHS.findall(line):
            path = os.path.normpath(Path(folder, text.rstrip(".")))
            if is_unseen:
                yield from _explain_unseen(path, sandbox, policy, home)
            else:
                yield from _explain_mask(path, policy)


def _explain_unseen(path: str, sandbox: Sandbox, policy: SandboxPolicy, home: str) -> Iterator[str]:
    if sandbox.sees(path) or path.startswith(_SESSION_FOLDERS):
        return
    for place in (str(Path(path).parent), path):
        if may_be_opened(place, policy, home, write=False):
            yield (
                f"commands do not see `{make_printable(path)}`, which the output names; if it is "
                f"to be seen, {_cure('readable', place)}"
            )
            return


def _explain_mask(path: str, policy: SandboxPolicy) -> Iterator[str]:
    """Explain why a name of the workspace cannot be opened, if it is one that is masked."""
    own_code = explain_own_code(path, policy.command_writable)
    if own_code:
        yield f"the sandbox refused to write `{make_printable(path)}`: {own_code}"
        return
    inside = _name_inside(path, policy)
    why = policy.names.check(inside, write=True) if inside else None
    if why is not None:
        yield f"`{make_printable(inside or '')}` is covered by the sandbox: {why}"


def _name_inside(path: str, policy: SandboxPolicy) -> str | None:
    root = str(policy.root)
    return os.path.relpath(path, root) if path.startswith(f"{root}/") else None


def _is_named(path: str, output: str) -> bool:
    """Whether an output names a path, in full or by its last component."""
    if path in output:
        return True
    name = Path(path).name
    return (
        len(name) > 2 and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", output) is not None
    )


# ---- what is asked


@frozen
class OpeningAnswer:
    """What a person said about an opening.

    `note` is their reason for a no; for a yes, what became of it, if there is something to say.
    """

    opening: Opening
    choice: str
    note: str


class SessionOpenings:
    """What a person opened for the commands of one session, and what they would not open."""

    def __init__(self) -> None:
        self._opened: list[Opening] = []
        self._declined: set[Opening] = set()

    def add_to(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Return a policy with all that was opened for the session."""
        for opening in self._opened:
            policy = opening.add_to(policy)
        return policy

    def find_askable(
        self,
        refusals: Iterable[Refusal],
        output: str,
        policy: SandboxPolicy,
        closed: tuple[str, ...],
    ) -> Opening | None:
        """Return the first opening that a person can be asked about, and was not yet."""
        home = os.path.realpath(Path.home())
        for refusal in refusals:
            if refusal.access == "write" and not _is_named(refusal.target, output):
                continue
            opening = find_opening(refusal, policy, home, closed)
            if opening is None or opening in self._declined or opening.add_to(policy) is policy:
                continue
            return opening
        return None

    async def ask(
        self,
        opening: Opening,
        command: str,
        context: Context,
        policy: SandboxPolicy,
        offers: tuple[GrantOffer, ...],
    ) -> OpeningAnswer | None:
        """Ask a person to open something. None if nobody could be asked.

        A no holds until the session ends, and so does a yes that is not for once.
        """
        approver: Any = context.resources.get(Approver)
        if approver is None:
            return None
        request = _build_request(opening, command, context, policy, offers)
        answer: ApprovalAnswer = await approver.ask(request)
        if answer.choice == "deny":
            self._declined.add(opening)
            if answer.refuser == "nobody":
                return None
        if answer.choice in ("session", "remember"):
            self._opened.append(opening)
        return OpeningAnswer(opening, answer.choice, answer.note if answer.choice == "deny" else "")


def list_offers(
    opening: Opening, folder: Path, *, once: bool, remember: bool
) -> tuple[GrantOffer, ...]:
    """Return the answers besides no that a person may give."""
    offers: list[GrantOffer] = []
    if once:
        offers.append(GrantOffer("once", ""))
    offers.append(GrantOffer("session", opening.name))
    if remember:
        offers.append(GrantOffer("remember", f"{opening.name}, for `{_one_line(str(folder))}`"))
    return tuple(offers)


def _build_request(
    opening: Opening,
    command: str,
    context: Context,
    policy: SandboxPolicy,
    offers: tuple[GrantOffer, ...],
) -> ApprovalRequest:
    values = {_FIELDS[opening.access]: _subject(opening), "command": command}
    return ApprovalRequest(
        call=ToolCall(f"{context.call_id}-opening", OPENING_TOOL.name, encode_json(values)),
        tool=OPENING_TOOL,
        risk=str(Risk.CRITICAL),
        reason=f"the sandbox refused {opening.name}; open it and run the command again?",
        labels=("sandbox",),
        preview="\n".join(_preview(opening, command, policy)),
        offers=offers,
        digest=digest_arguments(OPENING_TOOL.name, values),
        identity=context.identity,
        values=values,
    )


def _subject(opening: Opening) -> str:
    return f"https://{opening.target}" if opening.access == "network" else opening.target


def _preview(opening: Opening, command: str, policy: SandboxPolicy) -> Iterator[str]:
    yield f"opens: {opening.target}"
    yield f"for: commands that work in {_one_line(str(policy.root))}"
    if opening.access == "network":
        yield "they can send it whatever they can read"
    elif opening.access == "write":
        yield "they can change and delete what is in it; secret and reserved names stay covered"
    else:
        yield "they can read what is in it; secret and reserved names stay covered"
    yield f"then this is run again, from its beginning: {_one_line(command)}"


def _one_line(text: str) -> str:
    """Return a text of others in one line: it must not look like a line of the question."""
    line = make_printable(text).replace("\n", "\\n")
    return line if len(line) <= _MAX_COMMAND else f"{line[:_MAX_COMMAND]}…"


_FIELDS = {"read": "read", "write": "write", "network": "host"}

OPENING_TOOL = make_question_tool(
    "open_for_commands",
    "Open a folder or a host for the commands of this workspace.",
    SideEffect.EXTERNAL,
    {"read": READS, "write": WRITES, "host": URL},
)
"""What the question is about, in the form that approvers and deny rules know."""
