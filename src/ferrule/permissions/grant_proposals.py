"""Which grants could be offered for a call. Proposals only: the gate tries each and drops what
would not do.

Never proposed: a wildcard for programs that run other programs, and anything for commands whose
labels say that each time should be looked at. Paths are absolute, so that what is remembered holds
in one workspace.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from ferrule.core.frozen import frozen
from ferrule.tools.definition import Risk

from .commands.program_facts import TWO_WORDS, UNGRANTABLE
from .commands.syntax import Part
from .rule_matching import Case

ONCE_ONLY = frozenset(
    {
        "sudo",
        "curl_pipe_shell",
        "destructive",
        "network_exfil",
        "git_force_push",
        "credential_file_read",
        "outside_workspace",
    }
)
"""Labels that get no grant: a person looks at each such command."""

_RUN_ANY = frozenset({"run", "exec", "x", "dlx", "tool", "start", "script", "-c"})
_LONGEST = 200


@frozen
class Offer:
    """An answer that a person may choose; `rule` is the grant, empty for `once`."""

    choice: Literal["once", "session", "remember"]
    rule: str


def candidates(case: Case, root: str) -> list[str]:
    """Rules that might satisfy the gate, the narrowest first; low risk offers the tool first."""
    if case.tool.risk == Risk.CRITICAL or ONCE_ONLY.intersection(case.labels):
        return []
    kinds = {need.kind for need in case.needs}
    found: list[str] = []
    if "command" in kinds:
        found += _commands(case)
    elif "write" in kinds:
        found += _paths(case, "Edit", "write", root)
    elif "read" in kinds:
        found += _paths(case, "Read", "read", root)
    elif "url" in kinds:
        found += [
            f"WebFetch(domain:{need.value})"
            for need in case.needs
            if need.kind == "url" and need.value
        ]
    if not found or case.tool.risk == Risk.LOW:
        found.insert(0, case.name)
    elif "tool" in kinds and "command" not in kinds:
        found.append(case.name)
    return list(dict.fromkeys(found))


def _commands(case: Case) -> Iterator[str]:
    if len(case.analyses) != 1:
        return
    text = case.analyses[0].spelled
    if len(text) <= _LONGEST and text.isprintable():
        yield f"Bash({_literal(text)})"
    for need in case.needs:
        if need.part is not None and (prefix := _prefix(need.part)):
            yield f"Bash({prefix}:*)"


def _literal(text: str) -> str:
    return text.replace("*", "\\*")


def _prefix(part: Part) -> str:
    """The first one or two words of a command, if a wildcard after them is not too wide."""
    words = [word.text if word.known else "" for word in part.stripped]
    program = words[0] if words else ""
    if not re.fullmatch(r"[A-Za-z0-9_.+\-]+", program) or program in UNGRANTABLE:
        return ""
    if program not in TWO_WORDS:
        return program
    if (
        len(words) < 2
        or not re.fullmatch(r"[A-Za-z][\w:.\-]*", words[1])
        or words[1] in _RUN_ANY - {"run"}
    ):
        return ""
    if words[1] != "run":
        return f"{program} {words[1]}"
    named = (
        program in ("npm", "yarn", "pnpm")
        and len(words) > 2
        and re.fullmatch(r"[A-Za-z][\w:.\-]*", words[2])
    )
    return f"{program} run {words[2]}" if named else ""


def _paths(case: Case, family: str, kind: str, root: str) -> Iterator[str]:
    """Each path itself, then its folder; nothing above the workspace is ever offered."""
    paths = [need.value for need in case.needs if need.kind == kind and need.value]
    for path in paths:
        yield f"{family}(/{_escaped(path)})"
    for path in paths:
        folder = path if path == root else posixpath.dirname(path)
        yield f"{family}(/{_escaped(folder).rstrip('/')}/**)"


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!#])", r"\\\1", path)
