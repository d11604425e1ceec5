"""Allow rules by the first word of a command, or the folder, that each spells out.

A call is compared with those rules alone that could cover it, so it costs the same among ten
thousand rules as among ten. What a rule spells out is a necessary condition: `RuleMatcher.covers`
decides. A rule whose beginning is not certain (`Bash(git*)`, `Read(*.py)`, a tool's own name) is
compared with every call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ferrule.core.lazy_patterns import compile_lazily

from .command_analysis.syntax import CommandPart
from .rule_matching import (
    RequiredAccess,
    RuleMatcher,
    has_wildcard,
    split_anchor,
    unescape_specifier,
)
from .rules import PermissionRule, is_session_wide

_PLAIN_NAME = compile_lazily(r"/?([A-Za-z0-9_@+-][A-Za-z0-9_@+.-]*)/")
"""The first folder of a path pattern that is tied to where the pattern starts from."""


class AllowRules:
    """Some allow rules, in order.

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
