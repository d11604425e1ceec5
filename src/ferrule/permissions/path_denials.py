"""Deny rules for paths, applied where files are opened.

The gate decides about a deny rule such as `Read(private/**)` if an argument names the path. A
search, a listing or a command meets paths that no argument named: for them the rule must hold where
files are opened. So the names of the workspace (`ProtectedNames.rules`) include what the gate
refuses (`OpenRefusals`), and those of commands the deny rules (`PathDenials`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.tools.definition import Tool

from .command_analysis.shell_words import ANY, BRACE, UNKNOWN, could_match_name
from .protected_names import ProtectedNames
from .rule_matching import AnalysedCall, RuleMatcher, normalise_path, split_anchor
from .rules import PermissionRule

FindRefusal = Callable[[str, bool], str]
"""Returns why a path may not be read (or written, if True); empty if it may."""


@frozen
class PathDenials:
    """The deny rules for paths in a workspace.

    `root` is the workspace, `home` what `~` stands for. Names begin at `folder`, by default the
    workspace. A value: copies decide alike, in any process.
    """

    rules: tuple[PermissionRule, ...]
    root: str
    home: str
    folder: str = ""

    @property
    def creation_patterns(self) -> tuple[str, ...]:
        """Patterns for names that the rules forbid to create (`make_creation_patterns`)."""
        return () if self.folder else _cached_patterns(self.rules, self.root, self.home)

    def find_refusal(self, name: str, write: bool) -> str:
        """Return which deny rule refuses a path, relative or absolute; empty if none does."""
        absolute = normalise_path(name, self.folder or self.root, self.home)
        case = AnalysedCall(_NO_TOOL, "", (), named_files=((absolute, write),))
        for matcher in _matchers(self.rules, self.root, self.home):
            if matcher.could_match(case):
                return f"denied by the rule `{matcher.rule.text}`"
        return ""

    def select_suspicious(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return all of the names: a rule may be about any."""
        return names

    def for_commands(self) -> PathDenials | None:
        """Return the rules about some paths only: those about all of them hide tools instead."""
        rules = tuple(rule for rule in self.rules if rule.specifier)
        return replace(self, rules=rules) if rules else None


@frozen
class OpenRefusals:
    """What a gate refuses where files are opened (`PermissionGate.find_refusal`).

    `denials` are the part that binds commands, too. `lists` are the names that `refuses` goes by if
    it goes by nothing else; None if it may refuse any name.
    """

    refuses: FindRefusal
    denials: PathDenials | None = None
    lists: ProtectedNames | None = None

    @property
    def creation_patterns(self) -> tuple[str, ...]:
        """Patterns for names that the deny rules forbid to create."""
        return () if self.denials is None else self.denials.creation_patterns

    def find_refusal(self, name: str, write: bool) -> str:
        """Return why the gate refuses a path; empty if it does not."""
        return self.refuses(name, write)

    def select_suspicious(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names that the gate has to be asked about."""
        return names if self.lists is None else self.lists.select_suspicious(folder, names)

    def for_commands(self) -> PathDenials | None:
        """Return the deny rules."""
        return None if self.denials is None else self.denials.for_commands()


@frozen
class NamesOfFolder:
    """The names of a wider folder, for paths that begin at `folder`, which it contains."""

    folder: str
    outer: ProtectedNames

    @property
    def creation_patterns(self) -> tuple[str, ...]:
        """None: patterns of the wider folder would be read from this one."""
        return ()

    def find_refusal(self, name: str, write: bool) -> str:
        """Return why the wider folder refuses a path; empty if it does not."""
        return self.outer.check(self._whole(name), write=write) or ""

    def select_suspicious(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names that the wider folder has to be asked about."""
        return self.outer.select_suspicious(self._whole(folder), names)

    def for_commands(self) -> NamesOfFolder:
        """Return what binds commands in the wider folder."""
        return NamesOfFolder(self.folder, self.outer.for_commands())

    def _whole(self, name: str) -> str:
        return f"{self.folder}/{name}" if name else self.folder


@lru_cache(maxsize=16)
def _matchers(rules: tuple[PermissionRule, ...], root: str, home: str) -> tuple[RuleMatcher, ...]:
    return tuple(RuleMatcher(rule, root, home) for rule in rules)


@lru_cache(maxsize=16)
def _cached_patterns(rules: tuple[PermissionRule, ...], root: str, home: str) -> tuple[str, ...]:
    return make_creation_patterns(rules, root, home)


def _do_nothing() -> None:
    """Paths that no call named are judged for this tool, which has nothing to run."""


_NO_TOOL = Tool(name="", description="", arguments=cast("Any", None), handler=_do_nothing)


def make_creation_patterns(
    rules: Iterable[PermissionRule], root: str, home: str
) -> tuple[str, ...]:
    """Return patterns of the lists (`protected_names`) for what deny rules name below `root`.

    They are applied to names that do not exist yet, so they may match more than the rules, never
    less: a class of characters (`[ab]`) becomes `?`.
    """
    patterns: list[str] = []
    for rule in rules:
        patterns += _patterns_of(rule, root, home)
    return tuple(dict.fromkeys(patterns))


def names_something_in(rule: PermissionRule, folder: str, root: str, home: str) -> bool:
    """Return whether a rule for paths could name something in a folder, also outside `root`."""
    return any(True for _ in _names_below(folder, rule, root, home))


def could_name(path: str, rule: PermissionRule, root: str, home: str) -> bool:
    """Return whether a path with marks (`shell_words`) could become one that a rule names."""
    names = [name for name in path.split("/") if name]
    for components in _names_below("/", rule, root, home):
        wanted = list(components)
        while wanted and wanted[-1] in ("*", "**"):
            wanted.pop()  # what lies in a folder is named with the folder
        if _could_lead_to(names, wanted):
            return True
    return False


def _could_lead_to(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the first of some names could match all components of a pattern."""
    if not wanted:
        return True
    if wanted[0] == "**" and _could_lead_to(names, wanted[1:]):
        return True
    if not names:
        return False
    if wanted[0] == "**":
        return _could_lead_to(names[1:], wanted)
    # A variable, a brace or `**` may become several components. A variable alone tells nothing, so
    # it is not taken for the last one.
    spans = any(mark in names[0] for mark in (UNKNOWN, BRACE, ANY + ANY))
    for count in range(1, len(wanted) + 1 if spans else 2):
        is_told = count < len(wanted) or names[0].strip(UNKNOWN)
        matches = is_told and could_match_name(names[0], "/".join(wanted[:count]))
        if matches and _could_lead_to(names[1:], wanted[count:]):
            return True
    return False


def _patterns_of(rule: PermissionRule, root: str, home: str) -> Iterator[str]:
    for rest in _names_below(root, rule, root, home):
        yield _list_pattern(rest)


def _names_below(folder: str, rule: PermissionRule, root: str, home: str) -> Iterator[list[str]]:
    """Yield the components that follow a folder in what a rule names."""
    anchor, pattern = split_anchor(rule.specifier or "", rule.root or root, root, home)
    pattern = _widen(pattern.rstrip("/") or "/**")
    components = pattern.strip("/").split("/")
    if "/" not in pattern:
        components = ["**", *components]  # a name without a slash matches at any depth
    absolute = [part for part in (*anchor.split("/"), *components) if part]
    yield from _below_root([part for part in folder.split("/") if part], absolute)


def _list_pattern(components: list[str]) -> str:
    while len(components) > 1 and components[-1] == "**":
        components = components[:-1]  # a pattern of the lists covers what lies below, too
    if not components or components == ["**"]:
        return "*"
    if components[0] != "**":
        return "/" + "/".join(components)
    if components.count("**") > 1:
        return "*"
    return "/".join(components[1:])


def _widen(pattern: str) -> str:
    """Replace what stands for one character, classes and escaped wildcards, by `?`."""
    widened = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        class_end = pattern.find("]", position + 2) if character == "[" else -1
        if character == "\\":
            position += 1
            escaped = pattern[position : position + 1]
            widened += "?" if escaped in ("*", "?", "[") else escaped
        elif class_end > 0:
            widened += "?"
            position = class_end
        else:
            widened += character
        position += 1
    return widened


def _below_root(root: list[str], pattern: list[str]) -> Iterator[list[str]]:
    """Yield what is left of a pattern after its first components have matched the root."""
    if not root:
        yield pattern
        return
    if not pattern:
        yield []  # the pattern names a folder above the workspace: all of it is meant
        return
    first, *rest = pattern
    if first == "**":
        yield from _below_root(root, rest)
        yield from _below_root(root[1:], pattern)
    elif _matches(first.lower(), root[0].lower()):
        yield from _below_root(root[1:], rest)


def _matches(pattern: str, name: str) -> bool:
    """Return whether a component matches a pattern with `*` and `?`."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_matches(pattern[1:], name[start:]) for start in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and _matches(pattern[1:], name[1:])
