"""Matches permission rules against what a call touches. Text only: no file is opened or resolved.

There are two questions, and doubt counts in opposite directions. To *allow*, a rule must certainly
cover a need: unknown words, leading assignments, hazards and unusual spellings count against it. To
*deny* or *ask*, it is enough that a rule could match: every spelling of the program is tried, with
and without folder, options, assignments and wrappers, and names in any case.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from urllib.parse import urlsplit

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.tools.definition import Tool

from . import command_analysis
from .command_analysis.program_facts import drop_options, program_name, runs_arguments
from .command_analysis.subcommands import subcommand_spellings
from .command_analysis.syntax import CommandAnalysis, CommandPart
from .filesystem.gitignore import PathPatterns
from .rules import PermissionRule, is_session_wide, matches_tool


@frozen
class RequiredAccess:
    """One thing that allow rules must cover before a call is allowed.

    Attributes:
        kind: A subject kind, or `tool` for what the tool does beyond its subjects.
        value: An absolute path, a host, a name or a command.
        part: The simple command, if the need is for one.
        analysis: The command line from which the need comes, if it comes from one.
    """

    kind: str
    value: str = ""
    part: CommandPart | None = None
    analysis: CommandAnalysis | None = None


@frozen
class AnalysedCall:
    """A call as rules see it.

    Attributes:
        name: The tool's full name.
        needs: What must be allowed.
        analyses: The call's command lines.
        command_form: What the call amounts to as a command, which only deny and ask rules look at.
        named_files: `(absolute path, written)` of each file that the commands name.
        possible_files: The same for names of which only the shell knows a part, with marks
            (`shell_words`) for that part.
        labels: Risk labels of the commands.
        refusal: Why no rule can allow the call; empty if one can.
        doubt: Why a person has to look at it; empty if none has to.
        firm_doubt: The same, leaving out what the kernel answers where it confines commands: which
            files they touch.
        program_doubt: The same, leaving out also values that only come when the commands run.
        brings_content: Whether the call brings the content of every file that it reads.
    """

    tool: Tool
    name: str
    needs: tuple[RequiredAccess, ...]
    analyses: tuple[CommandAnalysis, ...] = ()
    command_form: tuple[CommandAnalysis, ...] = ()
    named_files: tuple[tuple[str, bool], ...] = ()
    possible_files: tuple[tuple[str, bool], ...] = ()
    labels: tuple[str, ...] = ()
    refusal: str = ""
    doubt: str = ""
    firm_doubt: str = ""
    program_doubt: str = ""
    brings_content: bool = False


class RuleMatcher:
    """Matches one rule in one workspace."""

    __slots__ = ("_matches_path", "rule")

    def __init__(self, rule: PermissionRule, root: str, home: str) -> None:
        self.rule = rule
        self._matches_path: Callable[[str], bool] | None = None
        if rule.specifier is not None and rule.kind in ("", "read", "write"):
            careful = rule.list != "allow"
            self._matches_path = make_path_matcher(
                rule.specifier, rule.root or root, root, home, careful
            )

    # ---- allow

    def covers(self, need: RequiredAccess, case: AnalysedCall) -> bool:
        """Return whether this allow rule certainly covers a need."""
        if self.rule.kind:
            return self._family_covers(need)
        return self._allows_tool(case) and self._tool_rule_covers(need, case)

    def _family_covers(self, need: RequiredAccess) -> bool:
        rule = self.rule
        if rule.kind == "command" and self._is_whole_command(need):
            return True
        kinds = ("write", "read") if rule.kind == "write" else (rule.kind,)
        return need.kind in kinds and (rule.specifier is None or self._specifier_covers(need))

    def _allows_tool(self, case: AnalysedCall) -> bool:
        if not matches_tool(self.rule, case.name):
            return False
        # To allow `mcp__srv` must mean a tool that came over MCP, not a file's tool that took such
        # a name.
        is_remote = case.tool.source.startswith("mcp") or case.name.startswith("mcp__")
        return is_remote or not self.rule.tool.startswith("mcp__")

    def _tool_rule_covers(self, need: RequiredAccess, case: AnalysedCall) -> bool:
        if self.rule.specifier is None:
            return True
        if need.kind == "tool":
            others = [other for other in case.needs if other.kind != "tool"]
            return any(self._specifier_covers(other) for other in others)
        if self._is_whole_command(need):
            return True
        if need.analysis is not None and need.part is None:
            return False
        return self._specifier_covers(need)

    def _is_whole_command(self, need: RequiredAccess) -> bool:
        return need.analysis is not None and _is_same_text(self.rule.specifier, need.analysis)

    def _specifier_covers(self, need: RequiredAccess) -> bool:
        specifier = self.rule.specifier or ""
        if need.kind in ("read", "write"):
            return self._matches_path is not None and self._matches_path(need.value)
        if need.kind == "command":
            return need.part is not None and covers_part(specifier, need.part)
        if need.kind == "url":
            return bool(need.value) and matches_host(specifier, need.value)
        return _glob(specifier).fullmatch(need.value) is not None

    # ---- deny and ask

    def could_match(self, case: AnalysedCall) -> bool:
        """Return whether this deny or ask rule could match anything that the call touches."""
        if self.rule.kind:
            return self._family_hits(case)
        if not matches_tool(self.rule, case.name):
            return False
        return self.rule.specifier is None or any(self._hits_need(need) for need in case.needs)

    def _family_hits(self, case: AnalysedCall) -> bool:
        rule = self.rule
        needs = [need for need in case.needs if need.kind == rule.kind]
        if rule.specifier is None:
            touched = any(touch.kind == rule.kind for touch in case.tool.touches.values())
            return touched or bool(needs)
        if any(self._hits_need(need) for need in needs):
            return True
        if self._matches_path is not None:
            for path, written in case.named_files:
                if (written or rule.kind == "read") and self._matches_path(path):
                    return True
            return False
        if rule.kind == "command":
            lines = (*case.analyses, *case.command_form)
            return any(could_match_line(rule.specifier, line) for line in lines)
        return False

    def _hits_need(self, need: RequiredAccess) -> bool:
        if need.kind == "command":
            return need.part is not None and could_match_part(self.rule.specifier or "", need.part)
        return self._specifier_covers(need)


# ---- allow rules by what they spell out


_PLAIN_NAME = compile_lazily(r"/?([A-Za-z0-9_@+-][A-Za-z0-9_@+.-]*)/")
"""The first folder of a path pattern that is tied to where the pattern starts from."""


class AllowRules:
    """Some allow rules, in order, by the first word or the folder that each spells out.

    A call is compared with those rules alone that could cover it, so it costs the same among ten
    thousand rules as among ten. What a rule spells out is a necessary condition:
    `RuleMatcher.covers` decides. A rule whose beginning is not certain (`Bash(git*)`,
    `Read(*.py)`, a tool's own name) is compared with every call.

    Args:
        matchers: The rules.
        root: The workspace.
        home: The folder that `~` stands for.

    Attributes:
        session_wide: Those that grant every use of a tool in the session.
    """

    def __init__(self, matchers: Iterable[RuleMatcher], root: str, home: str) -> None:
        self._matchers = tuple(matchers)
        self._uncertain: list[int] = []
        self._by_word: dict[str, list[int]] = {}
        self._by_folder: dict[str, list[int]] = {}
        for place, matcher in enumerate(self._matchers):
            self._find_list(matcher.rule, root, home).append(place)
        self.session_wide = tuple(
            [matcher.rule for matcher in self._matchers if is_session_wide(matcher.rule)]
        )

    def find(self, need: RequiredAccess) -> list[RuleMatcher]:
        """Return the rules that could cover a need, in their order."""
        places = list(self._uncertain)
        if self._by_folder and need.kind in ("read", "write"):
            for folder in _folders_to(need.value):
                places += self._by_folder.get(folder, ())
        if self._by_word:
            for word in _first_words(need):
                places += self._by_word.get(word, ())
        return [self._matchers[place] for place in sorted(places)]

    def _find_list(self, rule: PermissionRule, root: str, home: str) -> list[int]:
        if rule.specifier is None:
            return self._uncertain
        if rule.kind == "command":
            word = _first_word_of(rule.specifier)
            return self._by_word.setdefault(word, []) if word else self._uncertain
        if rule.kind in ("read", "write"):
            anchor, pattern = split_anchor(rule.specifier, rule.root or root, root, home)
            folder = _PLAIN_NAME.match(pattern.rstrip("/"))
            if folder is not None:
                return self._by_folder.setdefault(f"{anchor.rstrip('/')}/{folder[1]}", [])
        return self._uncertain


def _first_word_of(specifier: str) -> str:
    """Return the word that a command begins with if the specifier covers it; "" if unknown."""
    # A wildcard after a space or `:` may stand for nothing: the word before it is complete.
    literal = specifier[:-2] if specifier.endswith((":*", " *")) else specifier
    head = unescape_specifier(re.split(r"(?<!\\)\*", literal)[0])
    # Quotes make several spellings of one word, and other spaces than these end none.
    if not head.isascii() or not head.isprintable() or re.search(r"[\\'\"]", head):
        return ""
    words = head.split()
    is_complete = not has_wildcard(literal) or len(words) > 1 or head.endswith(" ")
    return words[0] if words and is_complete else ""


def _first_words(need: RequiredAccess) -> set[str]:
    """Return the words that the texts begin with which a rule for a command is compared with."""
    texts: list[str] = []
    if need.analysis is not None:
        texts.append(need.analysis.full_text)
    if need.part is not None:
        texts += _texts_of(need.part)
    return {text.split(maxsplit=1)[0] for text in texts if text.strip()}


def _texts_of(part: CommandPart) -> Iterator[str]:
    yield " ".join((*part.call_variables, part.raw))
    assignments = (*part.call_variables, *part.assignments)
    for words in (part.words, part.words_after_wrappers):
        if words:
            yield " ".join((*assignments, words[0].to_text()))
            yield words[0].text


def _folders_to(path: str) -> Iterator[str]:
    """Yield a path and the folders above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


# ---- paths


def make_path_matcher(
    specifier: str, settings: str, root: str, home: str, careful: bool
) -> Callable[[str], bool]:
    """Return a function that matches absolute, normalised paths.

    Args:
        specifier: The path pattern of a rule.
        settings: The folder of the settings that hold the rule.
        root: The workspace.
        home: The folder that `~` stands for.
        careful: For deny and ask rules: match every spelling (`fold_path`), and a folder with its
            contents.
    """
    anchor, pattern = split_anchor(specifier, settings, root, home)
    pattern = pattern.rstrip("/") or "/**"
    patterns = [pattern]
    if careful and pattern.endswith("/**") and len(pattern) > 3:
        # The folder itself. `a/**` means the folder `a` at the start and no other of that name.
        folder = pattern[:-3]
        patterns.append(folder if "/" in folder else f"/{folder}")
    if not careful:
        return _make_exact_matcher(anchor, tuple(patterns))
    in_lower_case = _make_exact_matcher(anchor.lower(), tuple(map(str.lower, patterns)))
    folded = _make_exact_matcher(fold_path(anchor), tuple(map(fold_path, patterns)))
    is_ascii = "".join((anchor, *patterns)).isascii()

    def matches(path: str) -> bool:
        if in_lower_case(path.lower()):
            return True
        # A character can become two, which a wildcard for one does not match: so both are asked.
        return not (is_ascii and path.isascii()) and folded(fold_path(path))

    return matches


def _make_exact_matcher(anchor: str, patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that matches paths below a folder as they are spelled."""
    matches_below = _compile_patterns(patterns)
    matches_anchor = patterns[0] in ("/**", "**", "/*", "*")
    below = anchor.rstrip("/") + "/"

    def matches(path: str) -> bool:
        if path == anchor or path + "/" == below:
            return matches_anchor
        return path.startswith(below) and matches_below(path[len(below) :])

    return matches


def fold_path(path: str) -> str:
    """Return what all spellings of a path have in common where a file system does not tell them.

    macOS opens one file by names in any case and either normal form; this is the Unicode standard's
    canonical caseless match (D145).
    """
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def split_anchor(specifier: str, settings: str, root: str, home: str) -> tuple[str, str]:
    """Return the folder that a path rule starts from, and its pattern in gitignore's syntax."""
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
def _compile_patterns(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return PathPatterns(patterns).match


# ---- commands


def covers_part(specifier: str, part: CommandPart) -> bool:
    """Return whether a specifier certainly covers a simple command.

    The command's redirects are not considered: they are needs of their own.
    """
    if not part.words:
        return False
    if not has_wildcard(specifier):
        return _covers_exactly(unescape_specifier(specifier), part)
    assignments = (*part.call_variables, *part.assignments)
    if assignments and not specifier.startswith(assignments[0]):
        return False
    spelled_out = _words_before_wildcard(specifier)
    if not all(hazard and hazard in spelled_out for hazard in part.hazards):
        return False
    pattern = _glob(specifier)
    for words in (part.words, part.words_after_wrappers):
        if not words or not words[0].is_known:
            continue
        text = " ".join((*assignments, *(word.to_text() for word in words)))
        if pattern.fullmatch(text):
            return True
    return False


def find_unspelled_words(specifier: str, part: CommandPart) -> tuple[str, ...]:
    """Return the words for which alone a specifier does not cover a simple command."""
    if not has_wildcard(specifier) or not covers_part(specifier, replace(part, hazards=())):
        return ()
    spelled_out = _words_before_wildcard(specifier)
    return tuple(word for word in part.hazards if word and word not in spelled_out)


def _covers_exactly(text: str, part: CommandPart) -> bool:
    if text == " ".join((*part.call_variables, part.raw)):
        return True
    if part.call_variables or part.assignments:
        return False
    try:
        wanted = shlex.split(text)
    except ValueError:
        return False
    # A word that results from quotes or wildcards is not what a plain word in the rule says.
    if re.search(r"[*?\[{$`~]", text):
        return False
    for words in (part.words, part.words_after_wrappers):
        if all(word.is_known for word in words) and [word.text for word in words] == wanted:
            return True
    return False


def _is_same_text(specifier: str | None, analysis: CommandAnalysis) -> bool:
    """Return whether a specifier is the whole command line, letter by letter."""
    if specifier is None or has_wildcard(specifier):
        return False
    return unescape_specifier(specifier) == analysis.full_text


def could_match_part(specifier: str, part: CommandPart) -> bool:
    """Return whether a specifier could mean a simple command, however it is spelled."""
    if has_wildcard(specifier):
        pattern = _glob(specifier)
        return any(pattern.fullmatch(text) is not None for text in _spellings_of(part))
    exact = unescape_specifier(specifier)
    return any(text == exact for text in _spellings_of(part))


def could_match_line(specifier: str, analysis: CommandAnalysis) -> bool:
    """Return whether a specifier could mean a command line, or any part of it."""
    if not has_wildcard(specifier) and unescape_specifier(specifier) == analysis.text:
        return True
    return any(could_match_part(specifier, part) for part in analysis.parts)


def _spellings_of(part: CommandPart) -> Iterator[str]:
    yield part.raw
    starts = [part.words, part.words_after_wrappers]
    if runs_arguments([word.text for word in part.words]):
        starts += [part.words[index:] for index in range(1, len(part.words))]
    elif not command_analysis.is_known_program(part.program):
        # `chronic git push`: a program that no table knows may run what it is given.
        plain_words = (n for n, word in enumerate(part.words) if n and word.text[:1] != "-")
        starts += [part.words[index:] for index in islice(plain_words, 1)]
    for words in starts:
        if not words:
            continue
        texts = tuple(word.text if word.is_known else word.raw for word in words)
        quoted = tuple(word.to_text() for word in words)
        without_folder = (program_name(texts[0]), *texts[1:])
        for spelling in {texts, quoted, without_folder}:
            yield " ".join(spelling)
            plain = drop_options(spelling)
            if plain != spelling:
                yield " ".join(plain)
            yield from map(" ".join, subcommand_spellings(plain))
        assignments = (*part.call_variables, *part.assignments)
        if assignments:
            yield " ".join((*assignments, *texts))


def has_wildcard(specifier: str) -> bool:
    r"""Return whether a command specifier contains a wildcard (`\*` is a literal star)."""
    return re.search(r"(?<!\\)\*", specifier) is not None


def unescape_specifier(specifier: str) -> str:
    """Return the text that a specifier without wildcards means."""
    return specifier.replace("\\*", "*")


@lru_cache(maxsize=2048)
def _glob(specifier: str) -> re.Pattern[str]:
    head = specifier
    tail = ""
    if specifier.endswith((":*", " *")):
        head = specifier[:-2]
        tail = r"(?:\s.*)?"
    pieces = [unescape_specifier(piece) for piece in re.split(r"(?<!\\)\*", head)]
    return re.compile(".*".join(map(re.escape, pieces)) + tail, re.DOTALL)


def _words_before_wildcard(specifier: str) -> frozenset[str]:
    """Return the words that a specifier spells out before its first wildcard."""
    head = re.split(r"(?<!\\)\*", specifier)[0]
    head = head[:-1] if head.endswith(":") else head
    words = unescape_specifier(head).split()
    # `Bash(git push --for*)` does not spell out `--force`: the last word is complete only if a
    # space or `:` ends it.
    is_complete = head == specifier or head.endswith(" ") or specifier.endswith(":*")
    return frozenset(words if is_complete else words[:-1])


# ---- addresses


def host_of_url(url: str) -> str:
    """Return the host of a URL in lower case, without port and user; empty if it is ambiguous."""
    if re.search(r"[\\\s\x00-\x1f]", url):
        return ""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        return host.encode("idna").decode("ascii").lower()
    except (ValueError, UnicodeError):
        return ""


def matches_host(specifier: str, host: str) -> bool:
    """Return whether a host matches: `domain:x` is only x, `domain:*.x` all hosts below x."""
    wanted = specifier.removeprefix("domain:").strip().lower().rstrip(".")
    if wanted.startswith("*."):
        return host.endswith(wanted[1:])
    return host == wanted


def normalise_path(path: str, root: str, home: str) -> str:
    """Return an absolute path without `.` and `..`, resolved as text."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(root, path))
