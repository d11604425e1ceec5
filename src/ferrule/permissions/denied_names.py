"""Names that no tool may touch, with the person's own deny rules among them.

A deny rule such as `Read(private/**)` is decided by the gate where an argument names the path. A
search, a listing or a tree meets paths that no argument named, and so do commands: for them the
same refusal has to hold where files are opened. So the workspace is given these names, and the
sandbox of commands those of `Denials`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .protected_names import Names
from .rule_matching import anchored
from .rules import Rule

Refuses = Callable[[str, bool], str]
"""Why a path may not be read (or, if True, written), or nothing."""


@dataclass(frozen=True, slots=True)
class RuledNames(Names):
    """`refuses` speaks of rules. `created` are patterns, in the language of the lists, of names
    that it refuses to create.
    """

    refuses: Refuses = lambda path, write: ""
    created: tuple[str, ...] = ()

    def check(self, name: str, *, write: bool) -> str | None:
        # The base class by name: `super()` does not work in a dataclass with slots.
        return Names.check(self, name, write=write) or self._ruled(name, write)

    def _ruled(self, name: str, write: bool) -> str | None:
        reason = self.refuses(name, write)
        return f"is {reason}" if reason.startswith("denied") else reason or None


@dataclass(frozen=True, slots=True)
class Denials:
    """What the person's deny rules for paths, and nothing else, say of a workspace."""

    refuses: Refuses
    created: tuple[str, ...]

    def added_to(self, names: Names) -> Names:
        """The lists with these rules."""
        return RuledNames(names.reserved, names.secret, names.protected, self.refuses, self.created)


def created_patterns(rules: Iterable[Rule], root: str, home: str) -> tuple[str, ...]:
    """Patterns of the lists (`permissions.protected_names`) for what deny rules for paths name
    below `root`.

    They are asked about names that do not exist yet, so they may say more than the rules, never
    less: a class of characters (`[ab]`) becomes `?`.
    """
    found = (pattern for rule in rules for pattern in _patterns(rule, root, home))
    return tuple(dict.fromkeys(found))


def _patterns(rule: Rule, root: str, home: str) -> Iterator[str]:
    specifier = rule.specifier or ""
    anchor, pattern = anchored(specifier, rule.root or root, root, home)
    pattern = _plain(pattern.rstrip("/") or "/**")
    parts = pattern.strip("/").split("/")
    if "/" not in pattern:
        parts = ["**", *parts]  # a name alone is meant at any depth
    whole = [part for part in (*anchor.split("/"), *parts) if part]
    for rest in _below([part for part in root.split("/") if part], whole):
        while len(rest) > 1 and rest[-1] == "**":
            rest = rest[:-1]  # what lies below is meant by the lists as well
        if not rest or rest == ["**"]:
            yield "*"
        elif rest[0] == "**":
            yield "/".join(part for part in rest if part != "**") if rest.count("**") == 1 else "*"
        else:
            yield "/" + "/".join(rest)


def _plain(pattern: str) -> str:
    """Without classes of characters and escapes, each of which is one character."""
    made = ""
    at = 0
    while at < len(pattern):
        one = pattern[at]
        end = pattern.find("]", at + 2) if one == "[" else -1
        if one == "\\":
            at += 1
            made += pattern[at : at + 1] if pattern[at : at + 1] not in ("*", "?", "[") else "?"
        elif end > 0:
            made += "?"
            at = end
        else:
            made += one
        at += 1
    return made


def _below(root: list[str], parts: list[str]) -> Iterator[list[str]]:
    """What is left of a pattern once its first components have matched those of the root."""
    if not root:
        yield parts
        return
    if not parts:
        yield []  # a folder above the workspace is named: all of it
        return
    first, *rest = parts
    if first == "**":
        yield from _below(root, rest)
        yield from _below(root[1:], parts)
    elif _matches(first.lower(), root[0].lower()):
        yield from _below(root[1:], rest)


def _matches(pattern: str, name: str) -> bool:
    """`*` and `?` within a component."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and _matches(pattern[1:], name[1:])
