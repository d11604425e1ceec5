"""Names of commits, branches and remotes as a model writes them, checked before any git starts.

What passes here cannot be an option (it does not begin with a dash), a second line, a path in
disguise (no `:`), a range where one commit is meant (no `..`), or a pattern. It may still name
nothing: git finds that out. Format of branch names: git-check-ref-format(1).
"""

from __future__ import annotations

import re

from ferrule.core.errors import RetryCall
from ferrule.core.lazy_patterns import compile_lazily

MAX_NAME = 250
"""Most characters of a name."""

_REVISION = compile_lazily(
    r"[A-Za-z0-9_@\u0080-\U0010ffff](?:[A-Za-z0-9_./@{}~^+=#%,\u0080-\U0010ffff-])*"
)
_BRANCH = compile_lazily(
    r"[A-Za-z0-9_\u0080-\U0010ffff](?:[A-Za-z0-9_./@+=#%,{}\u0080-\U0010ffff-])*"
)
_REMOTE = compile_lazily(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")


def check_revision(text: str, parameter: str = "rev") -> str:
    """Check the name of one commit: branch, tag, id, `HEAD~2`, `main@{1}`. Raises RetryCall."""
    is_short = len(text) <= MAX_NAME and text.isprintable()
    if is_short and ".." not in text and _REVISION.fullmatch(text):
        return text
    raise RetryCall(
        f"`{parameter}` = {_quote(text)} is not the name of one commit; write a branch, a "
        "tag, an id or `HEAD~1`"
    )


def check_range(text: str, parameter: str = "rev_range") -> str:
    """Check two commits with `..` or `...` between them; one may be left out. Raises RetryCall."""
    parts = re.split(r"\.{2,3}", text)
    if len(parts) != 2 or not any(parts):
        raise RetryCall(f"`{parameter}` = {_quote(text)} is not a range; write it as `main..HEAD`")
    for part in parts:
        if part:
            check_revision(part, parameter)
    return text


def check_branch(text: str, parameter: str = "branch") -> str:
    """Check the name of a branch that exists or could exist. Raises RetryCall."""
    if not is_valid_branch(text):
        raise RetryCall(
            f"`{parameter}` = {_quote(text)} cannot be the name of a branch; try letters, "
            "digits, `-` and `/`"
        )
    return text


def is_valid_branch(text: str) -> bool:
    """Return whether git accepts the name and a person cannot mistake it for something else."""
    if not (0 < len(text) <= MAX_NAME and text.isprintable() and _BRANCH.fullmatch(text)):
        return False
    if text in ("HEAD", "@") or re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", text):
        return False
    if ".." in text or "@{" in text or "//" in text or text.endswith(("/", ".")):
        return False
    return all(
        not part.startswith((".", "-")) and not part.lower().endswith(".lock")
        for part in text.split("/")
    )


def check_remote(text: str) -> str:
    """Check the name of a remote (never its address). Raises RetryCall."""
    if ".." not in text and _REMOTE.fullmatch(text):
        return text
    raise RetryCall(
        f"`remote` = {_quote(text)} is not the name of a remote; `git_remote_list` shows them"
    )


def _quote(text: str) -> str:
    more = "…" if len(text) > 80 else ""
    return f"{text[:80]!r}{more}"
