"""Whether a rule matches what a call touches. Text against text: nothing is opened, nothing is
resolved.

Two questions, answered with different care. To *allow*, a rule must surely cover a need: unknown
words, leading assignments, hazards and odd spellings count against it. To *deny* or *ask*, a rule
must possibly hit: every spelling of the program, with and without folder, options, assignments and
wrappers, and names in any case.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from ferrule.core.frozen import frozen
from ferrule.tools.definition import Tool

from .commands.program_facts import RUNNERS, base, without_options
from .commands.syntax import Analysis, Part
from .rules import Rule, names_tool


@frozen
class Need:
    """One thing that must be covered before a call is allowed.

    `kind` is a subject kind, or `tool` for what the tool does beyond its subjects. `value` is an
    absolute path, a host, a name; for commands `part` and `analysis` say more.
    """

    kind: str
    value: str = ""
    part: Part | None = None
    analysis: Analysis | None = None


@frozen
class Case:
    """A call as the rules see it. `named` are `(absolute path, written)` of its commands' file
    names.
    """

    tool: Tool
    name: str
    needs: tuple[Need, ...]
    analyses: tuple[Analysis, ...] = ()
    named: tuple[tuple[str, bool], ...] = ()
    labels: tuple[str, ...] = ()
    refusal: str = ""
    unsure: str = ""


class Matcher:
    """A rule made ready for one workspace."""

    __slots__ = ("_path", "rule")

    def __init__(self, rule: Rule, root: str, home: str) -> None:
        self.rule = rule
        self._path: Callable[[str], bool] | None = None
        specifier = rule.specifier
        if specifier is not None and rule.kind in ("", "read", "write"):
            self._path = path_matcher(
                specifier, rule.root or root, root, home, rule.list != "allow"
            )

    # ---- allow

    def covers(self, need: Need, case: Case) -> bool:
        """True if this allow rule surely covers this need."""
        rule = self.rule
        if not rule.kind:
            return self._names(case) and self._own(need, case)
        if (
            need.analysis is not None
            and rule.kind == "command"
            and _same_text(rule.specifier, need.analysis)
        ):
            return True
        wanted = ("write", "read") if rule.kind == "write" else (rule.kind,)
        return need.kind in wanted and (rule.specifier is None or self._specified(need))

    def _names(self, case: Case) -> bool:
        if not names_tool(self.rule, case.name):
            return False
        # To allow `mcp__srv` must mean a tool that came over MCP, not a file's tool that took such
        # a name.
        foreign = case.tool.source.startswith("mcp") or case.name.startswith("mcp__")
        return foreign or not self.rule.tool.startswith("mcp__")

    def _own(self, need: Need, case: Case) -> bool:
        if self.rule.specifier is None:
            return True
        if need.kind == "tool":
            return any(self._specified(other) for other in case.needs if other.kind != "tool")
        if need.analysis is not None and _same_text(self.rule.specifier, need.analysis):
            return True
        return (need.analysis is None or need.part is not None) and self._specified(need)

    def _specified(self, need: Need) -> bool:
        specifier = self.rule.specifier or ""
        if need.kind in ("read", "write"):
            return self._path is not None and self._path(need.value)
        if need.kind == "command":
            return need.part is not None and covers_part(specifier, need.part)
        if need.kind == "url":
            return bool(need.value) and host_matches(specifier, need.value)
        return _glob(specifier).fullmatch(need.value) is not None

    # ---- deny and ask

    def hits(self, case: Case) -> bool:
        """True if this deny or ask rule matches any of what the call touches."""
        rule = self.rule
        if not rule.kind:
            if not names_tool(rule, case.name):
                return False
            return rule.specifier is None or any(self._hit(need) for need in case.needs)
        if rule.specifier is None:
            return any(touch.kind == rule.kind for touch in case.tool.touches.values()) or any(
                need.kind == rule.kind for need in case.needs
            )
        if any(need.kind == rule.kind and self._hit(need) for need in case.needs):
            return True
        if self._path is not None:
            return any(
                self._path(path) for path, written in case.named if written or rule.kind == "read"
            )
        if rule.kind == "command":
            return any(hits_text(rule.specifier, analysis) for analysis in case.analyses)
        return False

    def _hit(self, need: Need) -> bool:
        if need.kind == "command":
            return need.part is not None and hits_part(self.rule.specifier or "", need.part)
        return self._specified(need)


# ---- paths


def path_matcher(
    specifier: str, settings: str, root: str, home: str, careful: bool
) -> Callable[[str], bool]:
    """A function of an absolute, normalised path. `careful` (deny, ask): any case, and a folder
    with its contents.
    """
    anchor, pattern = anchored(specifier, settings, root, home)
    pattern = pattern.rstrip("/") or "/**"
    patterns = [pattern]
    if careful and pattern.endswith("/**") and len(pattern) > 3:
        patterns.append(pattern[:-3])
    if careful:
        patterns = [p.lower() for p in patterns]
        anchor = anchor.lower()
    spec = _spec(tuple(patterns))
    whole = pattern in ("/**", "**", "/*", "*")
    below = anchor.rstrip("/") + "/"

    def matches(path: str) -> bool:
        if careful:
            path = path.lower()
        if path == anchor or path + "/" == below:
            return whole
        return path.startswith(below) and spec(path[len(below) :])

    return matches


def anchored(specifier: str, settings: str, root: str, home: str) -> tuple[str, str]:
    """The folder that a path rule begins at, and its pattern in gitignore's language."""
    if specifier.startswith("//"):
        return "/", specifier[1:]
    if specifier == "~" or specifier.startswith("~/"):
        return home, specifier[1:]
    if specifier.startswith("/"):
        return settings, specifier
    pattern = specifier
    while pattern.startswith("./"):
        pattern = "/" + pattern[2:].lstrip("/")
    if pattern == ".":
        pattern = "/**"
    return root, "\\" + pattern if pattern.startswith("#") else pattern


@lru_cache(maxsize=1024)
def _spec(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    from pathspec import PathSpec  # heavy: loaded with the first path rule

    return PathSpec.from_lines("gitignore", patterns).match_file


# ---- commands


def covers_part(specifier: str, part: Part) -> bool:
    """True if a specifier surely covers a simple command (its redirects are needs of their own)."""
    if not part.words:
        return False
    if not wild(specifier):
        return _exactly(literal_text(specifier), part)
    assignments = (*part.beside, *part.assignments)
    if assignments and not specifier.startswith(assignments[0]):
        return False
    spelled = _spelled(specifier)
    for words in (part.words, part.stripped):
        if not words or not words[0].known:
            continue
        if all(hazard and hazard in spelled for hazard in part.hazards) and _glob(
            specifier
        ).fullmatch(" ".join((*assignments, *(word.shown() for word in words)))):
            return True
    return False


def _exactly(text: str, part: Part) -> bool:
    if text == " ".join((*part.beside, part.raw)):
        return True
    if part.beside or part.assignments:
        return False
    try:
        wanted = shlex.split(text)
    except ValueError:
        return False
    # A word that came out of quotes or globs is not what a plain word in the rule says.
    if re.search(r"[*?\[{$`~]", text):
        return False
    return any(
        all(word.known for word in words) and [word.text for word in words] == wanted
        for words in (part.words, part.stripped)
    )


def _same_text(specifier: str | None, analysis: Analysis) -> bool:
    """The whole command line, letter by letter: what a person approved is what runs."""
    return (
        specifier is not None
        and not wild(specifier)
        and literal_text(specifier) == analysis.spelled
    )


def hits_part(specifier: str, part: Part) -> bool:
    """True if a specifier could mean this simple command, however it is spelled."""
    pattern = _glob(specifier) if wild(specifier) else None
    exact = literal_text(specifier)
    return any(
        pattern.fullmatch(text) is not None if pattern is not None else text == exact
        for text in _spellings(part)
    )


def hits_text(specifier: str, analysis: Analysis) -> bool:
    """The same for all parts, also those that a runner starts, and for the text as a whole."""
    if not wild(specifier) and literal_text(specifier) == analysis.text:
        return True
    return any(hits_part(specifier, part) for part in analysis.parts)


def _spellings(part: Part) -> Iterator[str]:
    yield part.raw
    starts = [part.words, part.stripped]
    if part.program in RUNNERS:
        starts += [part.words[index:] for index in range(1, len(part.words))]
    for words in starts:
        if not words:
            continue
        texts = tuple(word.text if word.known else word.raw for word in words)
        quoted = tuple(word.shown() for word in words)
        for spelled in {texts, quoted, (base(texts[0]), *texts[1:])}:
            yield " ".join(spelled)
            plain = without_options(spelled)
            if plain != spelled:
                yield " ".join(plain)
        if assignments := (*part.beside, *part.assignments):
            yield " ".join((*assignments, *texts))


def wild(specifier: str) -> bool:
    """True if a command specifier holds a wildcard (`\\*` is none)."""
    return re.search(r"(?<!\\)\*", specifier) is not None


def literal_text(specifier: str) -> str:
    """A specifier without wildcards as the text that it means."""
    return specifier.replace("\\*", "*")


@lru_cache(maxsize=2048)
def _glob(specifier: str) -> re.Pattern[str]:
    head, tail = specifier, ""
    if specifier.endswith((":*", " *")):
        head, tail = specifier[:-2], r"(?:\s.*)?"
    pieces = re.split(r"(?<!\\)\*", head)
    return re.compile(
        ".*".join(re.escape(literal_text(piece)) for piece in pieces) + tail, re.DOTALL
    )


def _spelled(specifier: str) -> frozenset[str]:
    """The words that a specifier spells out before its first wildcard."""
    head = re.split(r"(?<!\\)\*", specifier)[0]
    head = head[:-1] if head.endswith(":") else head
    words = literal_text(head).split()
    # `Bash(git push --for*)` does not spell `--force`: the last word is whole only if a blank or
    # `:` ends it.
    whole = head != specifier and (head.endswith(" ") or specifier.endswith(":*"))
    return frozenset(words if whole or head == specifier else words[:-1])


# ---- addresses


def host_of(url: str) -> str:
    """The host of a URL, lower case, without port or user; empty if that is open to
    interpretation.
    """
    if re.search(r"[\\\s\x00-\x1f]", url):
        return ""
    try:
        host = urlsplit(url).hostname or ""
        return host.rstrip(".").encode("idna").decode("ascii").lower() if host else ""
    except (ValueError, UnicodeError):
        return ""


def host_matches(specifier: str, host: str) -> bool:
    """`domain:x` is the host x alone; `domain:*.x` all below it."""
    wanted = specifier.removeprefix("domain:").strip().lower().rstrip(".")
    if wanted.startswith("*."):
        return host.endswith(wanted[1:])
    return host == wanted


def normal(path: str, root: str, home: str) -> str:
    """An absolute path without `.` and `..`, judged as text."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(root, path))
