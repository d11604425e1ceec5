r"""Permission rules: a line of text each that says which calls are denied, asked about or allowed.

    Tool                    every use of a tool      read_file  mcp__github  mcp__github__*
    Tool(specifier)         some uses                read_file(docs/**)  run_command(npm test)
    Read(pattern)           all that reads a path    Read(//etc/**)  Read(~/notes)  Read(*.md)
    Edit(pattern)           all that writes a path   Edit(src/**)
    Bash(command)           commands                 Bash(npm test)  Bash(git diff:*)  Bash(ls*)
    WebFetch(domain:host)   addresses                WebFetch(domain:*.python.org)
    Agent(name) Skill(name) sub-agents and skills

The lists are tried in the order deny, ask, allow. The first list with a match decides, however
specific its rule is. Path patterns are those of gitignore: `//x` is absolute, `~/x` is in the home
folder, `/x` starts from the folder of the settings that contain the rule (its `root`, by default
the workspace), and anything else from the workspace. A `*` inside a command stands for any text,
` *` and `:*` at the end mean "and anything after this word", `\*` is a star. The syntax is that of
conventions §3.3 (the permission rules of Claude Code).

This file parses rules and checks them for mistakes. Matching is in `rule_matching`, evaluation in
`gate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.similar_names import find_similar_names, suggest_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RuleLayer
from ferrule.tools.definition import BUILTIN_NAMESPACE

from .command_analysis.program_facts import INTERPRETERS, RUNNERS, SHELLS
from .protected_names import DEFAULT_NAMES

RuleList = Literal["deny", "ask", "allow"]
LAYERS: tuple[RuleLayer, ...] = (
    "builtin",
    "managed",
    "flags",
    "local",
    "project",
    "user",
    "session",
)
"""Where rules come from, the strongest first. This only decides which rule is given as reason."""

RULE_FAMILIES = {
    "Read": "read",
    "Edit": "write",
    "Bash": "command",
    "WebFetch": "url",
    "Agent": "agent",
    "Skill": "skill",
}
"""Names for a kind of subject (`tools.definition.Touch.kind`), whatever the tool is called."""

_SIMILAR_FAMILIES = {
    "Write": "Edit",
    "MultiEdit": "Edit",
    "Grep": "Read",
    "Glob": "Read",
    "LS": "Read",
}
"""Tools of other programs, and the family that means the same."""

_TOOL = compile_lazily(r"[A-Za-z0-9_.:*\-]+")
_SYNTAX_HINT = "a rule is `Tool` or `Tool(specifier)`, like `Bash(npm test)` or `Read(docs/**)`"


@frozen
class PermissionRule:
    """One permission rule.

    Attributes:
        text: The rule as it was written.
        tool: The name of a tool or family.
        specifier: What is between the parentheses; None if every use is meant.
        list: The list that contains the rule.
        layer: Where the rule comes from.
        root: The absolute folder that patterns like `/src` start from; empty for the workspace.
    """

    text: str
    tool: str
    specifier: str | None
    list: RuleList = "allow"
    layer: RuleLayer = "user"
    root: str = ""

    @property
    def kind(self) -> str:
        """The subject kind of a family rule, or empty for a rule that names a tool."""
        return RULE_FAMILIES.get(self.tool, "")


def parse_rule(
    text: str, list: RuleList = "allow", *, layer: RuleLayer = "user", root: str = ""
) -> PermissionRule:
    """Parse one rule.

    Raises:
        ConfigError: Names the rule, what was found, the column (from 1) and the next step.
    """
    stripped = text.strip()
    if not stripped:
        raise _syntax_error(text, 1, "nothing", _SYNTAX_HINT)
    match = _TOOL.match(stripped)
    if match is None:
        found = f"`{stripped[0]}` where the name of a tool begins"
        raise _syntax_error(text, 1, found, _SYNTAX_HINT)
    tool = match.group()
    rest = stripped[match.end() :]
    _check_tool_name(text, tool)
    if not rest:
        return PermissionRule(stripped, tool, None, list, layer, root)
    column = match.end() + 1
    if not rest.startswith("("):
        found = f"`{rest[0]}` after the name of the tool"
        raise _syntax_error(text, column, found, _SYNTAX_HINT)
    if ")" not in rest:
        raise _syntax_error(text, column, "no closing parenthesis", "end the rule with `)`")
    if not rest.endswith(")"):
        end = rest.rindex(")") + 1
        found = f"`{rest[end:]}` after the closing parenthesis"
        raise _syntax_error(text, column + end, found, "end the rule with `)`")
    specifier = rest[1:-1].strip()
    _check_specifier(text, tool, specifier, column + 1)
    is_every_use = specifier in ("*", "**") or (specifier == ":*" and tool == "Bash")
    return PermissionRule(stripped, tool, None if is_every_use else specifier, list, layer, root)


def is_session_wide(rule: PermissionRule) -> bool:
    """Return whether a rule is a person's grant of every use of a tool in this session."""
    return rule.layer == "session" and rule.specifier is None and not rule.kind


def find_similar_family(tool: str) -> str:
    """Return the kind of access that a word of other programs stands for, or ""."""
    return _SIMILAR_FAMILIES.get(tool, "")


def _check_tool_name(text: str, tool: str) -> None:
    """Raise ConfigError for a misspelled family, whose rule would silently match nothing.

    Other names may be tools; whether there is such a tool is not known here.
    """
    if tool in RULE_FAMILIES or not (tool.isalpha() and tool[0].isupper()):
        return
    suggestion = suggest_names(tool, RULE_FAMILIES, cutoff=0.7)
    if suggestion:
        known = ", ".join(f"`{name}`" for name in RULE_FAMILIES)
        found = f"`{tool}`, which is not a kind of access"
        raise _syntax_error(text, 1, found, f"{suggestion} there are {known}")


def _check_specifier(text: str, tool: str, specifier: str, column: int) -> None:
    kind = RULE_FAMILIES.get(tool, "")
    if not specifier:
        step = f"write `{tool}` to mean every use"
        raise _syntax_error(text, column, "nothing between the parentheses", step)
    if "\0" in specifier:
        position = column + specifier.index("\0")
        raise _syntax_error(text, position, "a NUL character", "remove it")
    if kind in ("read", "write"):
        if specifier.startswith("!"):
            step = "a pattern cannot be negated: put the rule into another list"
            raise _syntax_error(text, column, "`!`", step)
        if ".." in specifier.split("/"):
            position = column + specifier.index("..")
            step = "write where the path really is, from `//`, `~/` or `/`"
            raise _syntax_error(text, position, "`..`", step)
    if kind == "url" and (not specifier.startswith("domain:") or not specifier[7:].strip()):
        step = "write `WebFetch(domain:example.org)`"
        raise _syntax_error(text, column, f"`{specifier}`", step)


def _syntax_error(text: str, column: int, found: str, step: str) -> ConfigError:
    return ConfigError(
        f"rule `{text}`: found {found} in column {column}", code="rule_syntax", hint=step
    )


class RuleSet:
    """Rules in their three lists, each in the order of layers. Immutable."""

    def __init__(self, rules: Iterable[PermissionRule] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: LAYERS.index(rule.layer)))
        self.deny = tuple(rule for rule in self.rules if rule.list == "deny")
        self.ask = tuple(rule for rule in self.rules if rule.list == "ask")
        self.allow = tuple(rule for rule in self.rules if rule.list == "allow")

    @staticmethod
    def parse(
        *,
        deny: Iterable[str] = (),
        ask: Iterable[str] = (),
        allow: Iterable[str] = (),
        layer: RuleLayer = "user",
        root: str = "",
    ) -> RuleSet:
        """Parse the three lists of one settings file. Raises ConfigError for an invalid rule."""
        rules = [parse_rule(text, "deny", layer=layer, root=root) for text in deny]
        rules += [parse_rule(text, "ask", layer=layer, root=root) for text in ask]
        rules += [parse_rule(text, "allow", layer=layer, root=root) for text in allow]
        return RuleSet(rules)

    def __iter__(self) -> Iterator[PermissionRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def lint(self, tools: Iterable[str] = (), *, can_grow: bool = False) -> list[str]:
        """Return what is probably a mistake, a sentence each.

        Args:
            tools: The full names of all tools, if they are known.
            can_grow: Whether scripts may register further tools (`tools.register`). Then a rule
                may name a tool before there is one, unless the name looks like a misspelling.
        """
        known = frozenset(tools)
        findings: list[str] = []
        for rule in self.rules:
            findings += _lint_rule(rule, known, can_grow=can_grow)
        return [*findings, *self._lint_order()]

    def _lint_order(self) -> Iterator[str]:
        """Yield the rules that change nothing because of other rules."""
        earlier_lists: dict[RuleList, tuple[PermissionRule, ...]] = {
            "deny": (),
            "ask": self.deny,
            "allow": (*self.deny, *self.ask),
        }
        for index, rule in enumerate(self.rules):
            shadow = _find_covering(rule, earlier_lists[rule.list])
            if shadow is not None:
                yield (
                    f"`{rule.text}` ({rule.list}) never decides: `{shadow.text}` "
                    f"({shadow.list}) comes first"
                )
                continue
            same_list = [other for other in self.rules[:index] if other.list == rule.list]
            duplicate = _find_covering(rule, same_list)
            if duplicate is not None:
                yield f"`{rule.text}` ({rule.list}) adds nothing to `{duplicate.text}`"


def matches_tool(rule: PermissionRule, full_name: str) -> bool:
    """Return whether a rule that is not a family rule names a tool.

    `mcp__srv` and `mcp__srv__tool` name the tools `srv__...` that Ferrule makes of a server's. A
    tool that is hidden by a tool of a file with the same name keeps the deny and ask rules for that
    name; allow rules apply to the visible one.
    """
    pattern = rule.tool
    if pattern == full_name:
        return True
    if rule.list != "allow" and full_name.startswith(f"{BUILTIN_NAMESPACE}::"):
        own_name = full_name.removeprefix(f"{BUILTIN_NAMESPACE}::")
        return _matches_name(pattern, full_name) or _matches_name(pattern, own_name)
    if pattern.startswith("mcp__"):
        name = full_name.removeprefix("mcp__")
        wanted = pattern[5:]
        if "__" not in wanted and name.startswith(f"{wanted}__"):
            return True
        return _matches_name(wanted, name)
    return _matches_name(pattern, full_name)


def _matches_name(pattern: str, name: str) -> bool:
    if "*" not in pattern:
        return pattern == name
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


# ---- checks for mistakes


def _find_covering(rule: PermissionRule, others: Iterable[PermissionRule]) -> PermissionRule | None:
    return next((other for other in others if _covers(other, rule)), None)


def _covers(wide: PermissionRule, narrow: PermissionRule) -> bool:
    """Return whether `wide` certainly matches all that `narrow` matches; False if in doubt."""
    if wide.kind != narrow.kind or (not wide.kind and not matches_tool(wide, narrow.tool)):
        return False
    if wide.specifier is None:
        return True
    if narrow.specifier is None or wide.root != narrow.root:
        return False
    if wide.specifier == narrow.specifier:
        return True
    return _is_wider(wide.specifier, narrow.specifier, wide.kind)


def _is_wider(wide: str, narrow: str, kind: str) -> bool:
    if kind == "command":
        prefix = _command_prefix(wide)
        if prefix is None:
            return False
        return narrow == prefix or narrow.startswith((f"{prefix} ", f"{prefix}:"))
    if kind in ("read", "write") and wide.endswith("/**") and not re.search(r"[*?\[]", wide[:-3]):
        return narrow.startswith(wide[:-2])
    return False


def _command_prefix(specifier: str) -> str | None:
    for ending in (":*", " *"):
        if specifier.endswith(ending) and "*" not in specifier[:-2]:
            return specifier[:-2]
    return None


def _lint_rule(rule: PermissionRule, known: frozenset[str], *, can_grow: bool) -> Iterator[str]:
    shown = f"`{rule.text}` ({rule.list}, {rule.layer})"
    may_come = can_grow and not find_similar_names(rule.tool, known, cutoff=0.8)
    is_unknown = known and not any(matches_tool(rule, name) for name in known)
    if not rule.kind and is_unknown and not may_come:
        family = _SIMILAR_FAMILIES.get(rule.tool)
        instead = f": write `{family}(...)`" if family else ""
        yield f"{shown} can never match: there is no tool `{rule.tool}`{instead}"
    if rule.specifier is None:
        if rule.tool == "*" and rule.list == "allow":
            yield f"{shown} allows every tool"
        return
    lint = _LINTS.get(rule.kind)
    if lint is not None:
        yield from lint(rule, shown)


def _lint_command(rule: PermissionRule, shown: str) -> Iterator[str]:
    specifier = rule.specifier or ""
    if rule.list == "allow":
        words = specifier.replace(":*", " *").split()
        first = words[0] if words else ""
        if first in RUNNERS | SHELLS | INTERPRETERS and words[1:] == ["*"]:
            yield f"{shown} allows any command: `{first}` runs what it is given"
        if "*" in first and first != "*":
            yield f"{shown} has no word boundary: `{first}` also begins the names of other programs"
        if re.search(r"[^\\](\||&&|;|\n)|[<>`]|\$\(", specifier) and "*" in specifier:
            yield (
                f"{shown} can never match: a compound command is judged part by part; write a "
                "rule per part"
            )


def _lint_path(rule: PermissionRule, shown: str) -> Iterator[str]:
    specifier = (rule.specifier or "").lstrip("/")
    if rule.list != "deny" and not re.search(r"[*?\[]", specifier):
        reason = DEFAULT_NAMES.check(specifier.removeprefix("~/"), write=rule.kind == "write")
        if reason:
            yield f"{shown} can never allow anything: {reason}"


def _lint_url(rule: PermissionRule, shown: str) -> Iterator[str]:
    host = (rule.specifier or "").removeprefix("domain:").strip()
    if "/" in host or ":" in host:
        yield f"{shown} can never match: a domain has no scheme, port or path"


_LINTS = {"command": _lint_command, "read": _lint_path, "write": _lint_path, "url": _lint_url}
