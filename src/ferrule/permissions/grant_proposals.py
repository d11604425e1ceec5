"""Proposals for grants that a person could be offered instead of approving each call.

The gate tries each proposal and drops those that would not allow the call. Never proposed: a
wildcard for programs that run other programs, and anything for commands with a label of
`ONCE_ONLY`. Paths are absolute, so that a remembered grant holds in one workspace only.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.tools.definition import Risk

from .command_analysis.program_facts import (
    INTERPRETERS,
    NEVER_GRANTED,
    SHELLS,
    TWO_WORDS,
    program_name,
    word_set,
)
from .command_analysis.syntax import CommandPart
from .rule_matching import AnalysedCall

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
"""Labels of commands for which no grant is offered: a person looks at each of them."""

_SCRIPTED = SHELLS | INTERPRETERS - word_set("make gmake awk gawk mawk nawk")
"""Programs that obey their standard input where no argument is their script."""
_INTERACTIVE = word_set("xargs sqlite3 psql mysql bc dc ed ex vi vim nvim emacs")
"""Programs that obey it besides what their arguments say."""
_RUNS_ANYTHING = frozenset({"exec", "x", "dlx", "tool", "start", "script", "-c"})
_PYTHON = compile_lazily(r"python(3(\.\d+)?)?")
_CHECKERS = word_set("pytest unittest mypy ruff black isort flake8 pylint pyright")
"""Modules that a prefix may name after `python -m`: they run what the project has, as their
commands do.
"""
_MAX_COMMAND_LENGTH = 200


@frozen
class GrantOffer:
    """An answer that a person may choose.

    `rule` is the grant: empty for `once`, a permission mode for `mode`.
    """

    choice: Literal["once", "session", "remember", "mode"]
    rule: str


def propose_grants(case: AnalysedCall, root: str) -> list[str]:
    """Return rules that might allow a call, the narrowest first.

    For a tool of low risk, the rule for the whole tool comes first.
    """
    if case.tool.risk == Risk.CRITICAL or ONCE_ONLY.intersection(case.labels):
        return []
    kinds = {need.kind for need in case.needs}
    found: list[str] = []
    if "command" in kinds:
        found += _command_rules(case)
    elif "write" in kinds:
        found += _path_rules(case, "Edit", "write", root)
    elif "read" in kinds:
        found += _path_rules(case, "Read", "read", root)
    elif "url" in kinds:
        hosts = [need.value for need in case.needs if need.kind == "url" and need.value]
        found += [f"WebFetch(domain:{host})" for host in hosts]
    if not found or case.tool.risk == Risk.LOW:
        found.insert(0, case.name)
    elif "tool" in kinds and "command" not in kinds:
        found.append(case.name)
    return list(dict.fromkeys(found))


def propose_all_edits(case: AnalysedCall, root: str) -> list[str]:
    """Return the rule for all edits in the workspace, if the call writes there."""
    if case.tool.risk == Risk.CRITICAL or ONCE_ONLY.intersection(case.labels):
        return []
    writes = any(need.kind == "write" for need in case.needs)
    return [f"Edit(/{_escape_wildcards(root).rstrip('/')}/**)"] if writes else []


def comes_again(rule: str) -> bool:
    """Return whether a rule is about more calls than the one it was made for.

    A whole command line hardly ever comes a second time, letter by letter.
    """
    return not rule.startswith("Bash(") or rule.endswith(":*)")


def _command_rules(case: AnalysedCall) -> Iterator[str]:
    if len(case.analyses) != 1:
        return
    text = case.analyses[0].full_text
    # A rule is about the command and not about its input, which is another one in the next call.
    if any(need.part is not None and _obeys_input(need.part) for need in case.needs):
        return
    if len(text) <= _MAX_COMMAND_LENGTH and text.isprintable():
        literal = text.replace("*", "\\*")
        yield f"Bash({literal})"
    for need in case.needs:
        prefix = _command_prefix(need.part) if need.part is not None else ""
        if prefix:
            yield f"Bash({prefix}:*)"


def _obeys_input(part: CommandPart) -> bool:
    """Return whether a command does what the call's standard input says."""
    if part.fed_by or any(not redirect.write for redirect in part.redirects):
        return False
    words = [word.text if word.is_known else "?" for word in part.words_after_wrappers]
    first = part.words[0].text if part.words else ""
    programs = {program_name(name) for name in (first, *words[:1])}
    if programs & _INTERACTIVE:
        return True
    has_script = any(not word.startswith("-") or word in ("-c", "-e", "-m") for word in words[1:])
    return bool(programs & _SCRIPTED) and not has_script


def _command_prefix(part: CommandPart) -> str:
    """Return the first words of a command, if a wildcard after them is not too wide."""
    words = [word.text if word.is_known else "" for word in part.words_after_wrappers]
    program = words[0] if words else ""
    if _PYTHON.fullmatch(program) and words[1:2] == ["-m"] and words[2:3]:
        return f"{program} -m {words[2]}" if words[2] in _CHECKERS else ""
    if not re.fullmatch(r"[A-Za-z0-9_.+\-]+", program) or program in NEVER_GRANTED:
        return ""
    if program not in TWO_WORDS:
        return program
    verb = words[1] if len(words) > 1 else ""
    if not _is_plain_word(verb) or verb in _RUNS_ANYTHING:
        return ""
    if verb != "run":
        return f"{program} {verb}"
    script = words[2] if len(words) > 2 else ""
    if program in ("npm", "yarn", "pnpm") and _is_plain_word(script):
        return f"{program} run {script}"
    return ""


def _is_plain_word(word: str) -> bool:
    return re.fullmatch(r"[A-Za-z][\w:.\-]*", word) is not None


def _path_rules(case: AnalysedCall, family: str, kind: str, root: str) -> Iterator[str]:
    """Yield rules for each path, then for its folder; nothing above the workspace is offered."""
    paths = [need.value for need in case.needs if need.kind == kind and need.value]
    for path in paths:
        yield f"{family}(/{_escape_wildcards(path)})"
    for path in paths:
        folder = path if path == root else posixpath.dirname(path)
        yield f"{family}(/{_escape_wildcards(folder).rstrip('/')}/**)"


def _escape_wildcards(path: str) -> str:
    return re.sub(r"([\\*?\[\]!#])", r"\\\1", path)
