"""Permission rules: one line of text that says which calls are denied, asked for or allowed.

    Tool                    every use of a tool            read_file   mcp__github   mcp__github__*
    Tool(specifier)         some uses                      read_file(docs/**)   run_command(npm test)
    Read(pattern)           all that reads a path          Read(//etc/**)  Read(~/notes)  Read(/src)  Read(*.md)
    Edit(pattern)           all that writes a path         Edit(src/**)
    Bash(command)           commands                       Bash(npm test)  Bash(git diff *)  Bash(git diff:*)  Bash(ls*)
    WebFetch(domain:host)   addresses                      WebFetch(domain:docs.python.org)  WebFetch(domain:*.python.org)
    Agent(name) Skill(name) by name

Order: deny, then ask, then allow. The first list with a match decides; how specific a rule is does
not matter. Path patterns are those of gitignore: `//x` absolute, `~/x` in the home folder, `/x`
from the folder of the settings that hold the rule (its `root`; the workspace by default), anything
else from the workspace. A `*` inside a command stands for any text, ` *` and `:*` at the end mean
"and anything after this word", `\\*` is a star. Grammar as in conventions §3.3 (the permission
rules of Claude Code).

This file parses and lists. Matching is in `rule_matching.py`, the order of lists in `gate.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.core.lazy_patterns import expression
from ferrule.tools.definition import OWN

from .commands.program_facts import INTERPRETERS, RUNNERS, SHELLS
from .protected_names import DEFAULT

List = Literal["deny", "ask", "allow"]
Layer = Literal["managed", "flags", "local", "project", "user", "session", "builtin"]

LAYERS: tuple[Layer, ...] = ("builtin", "managed", "flags", "local", "project", "user", "session")
"""Where rules come from, the strongest first. It orders only which rule is named as the reason."""

FAMILIES = {
    "Read": "read",
    "Edit": "write",
    "Bash": "command",
    "WebFetch": "url",
    "Agent": "agent",
    "Skill": "skill",
}
"""Names that stand for a kind of subject (`tools.definition.Touch.kind`), whatever the tool is
called.
"""

_TOOL = expression(r"[A-Za-z0-9_.:*\-]+")
_COLUMN_HINT = "a rule is `Tool` or `Tool(specifier)`, like `Bash(npm test)` or `Read(docs/**)`"


@frozen
class Rule:
    """One rule. `specifier` is None where every use of `tool` is meant.

    `root` is the absolute folder that patterns like `/src` start from; empty means the workspace.
    """

    text: str
    tool: str
    specifier: str | None
    list: List = "allow"
    layer: Layer = "user"
    root: str = ""

    @property
    def kind(self) -> str:
        """The subject kind of a family rule, or empty for a rule that names a tool."""
        return FAMILIES.get(self.tool, "")


def parse_rule(text: str, list: List = "allow", *, layer: Layer = "user", root: str = "") -> Rule:
    """Text to rule. ConfigError names the rule, what was found, the column (from 1) and the next
    step.
    """
    stripped = text.strip()
    if not stripped:
        raise _wrong(text, 1, "nothing", _COLUMN_HINT)
    named = _TOOL.match(stripped)
    if named is None:
        raise _wrong(text, 1, f"`{stripped[0]}` where the name of a tool begins", _COLUMN_HINT)
    tool, rest = named.group(), stripped[named.end() :]
    if not rest:
        return Rule(stripped, tool, None, list, layer, root)
    column = named.end() + 1
    if not rest.startswith("("):
        raise _wrong(text, column, f"`{rest[0]}` after the name of the tool", _COLUMN_HINT)
    if not rest.endswith(")"):
        close = rest.rfind(")")
        found = (
            "no closing parenthesis"
            if close < 0
            else f"`{rest[close + 1 :]}` after the closing parenthesis"
        )
        raise _wrong(
            text, column if close < 0 else column + close + 1, found, "end the rule with `)`"
        )
    specifier = rest[1:-1].strip()
    _check_head(text, tool)
    _check_specifier(text, tool, specifier, column + 1)
    every = specifier in ("*", "**") or (specifier == ":*" and tool == "Bash")
    return Rule(stripped, tool, None if every else specifier, list, layer, root)


def _check_head(text: str, tool: str) -> None:
    """Raise ConfigError for a name that is nearly one of the families: such a rule would match
    nothing, in silence.

    Names that are like none of them may be a tool's own; whether there is such a tool is not known
    here.
    """
    if tool in FAMILIES or not (tool.isalpha() and tool[0].isupper()):
        return
    from difflib import get_close_matches

    near = get_close_matches(tool, FAMILIES, n=1, cutoff=0.7)
    if near:
        known = ", ".join(f"`{name}`" for name in FAMILIES)
        raise _wrong(
            text,
            1,
            f"`{tool}`, which names no kind of access",
            f"did you mean `{near[0]}`? there are {known}",
        )


def _check_specifier(text: str, tool: str, specifier: str, column: int) -> None:
    kind = FAMILIES.get(tool, "")
    if not specifier:
        raise _wrong(
            text, column, "nothing between the parentheses", f"write `{tool}` to mean every use"
        )
    if "\0" in specifier:
        raise _wrong(text, column + specifier.index("\0"), "a NUL character", "remove it")
    if kind in ("read", "write"):
        if specifier.startswith("!"):
            raise _wrong(
                text,
                column,
                "`!`",
                "a pattern cannot be turned around: put the rule into another list",
            )
        if ".." in specifier.split("/"):
            raise _wrong(
                text,
                column + specifier.index(".."),
                "`..`",
                "write where the path really is, from `//`, `~/` or `/`",
            )
    if kind == "url" and (not specifier.startswith("domain:") or not specifier[7:].strip()):
        raise _wrong(text, column, f"`{specifier}`", "write `WebFetch(domain:example.org)`")


def _wrong(text: str, column: int, found: str, step: str) -> ConfigError:
    return ConfigError(
        f"rule `{text}`: found {found} in column {column}", code="rule_syntax", hint=step
    )


class RuleSet:
    """Rules in their three lists, each in the order of layers. Immutable."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: LAYERS.index(rule.layer)))
        self.deny = tuple(rule for rule in self.rules if rule.list == "deny")
        self.ask = tuple(rule for rule in self.rules if rule.list == "ask")
        self.allow = tuple(rule for rule in self.rules if rule.list == "allow")

    @staticmethod
    def of(
        *,
        deny: Iterable[str] = (),
        ask: Iterable[str] = (),
        allow: Iterable[str] = (),
        layer: Layer = "user",
        root: str = "",
    ) -> RuleSet:
        """Rules from the three lists of one settings file. Raises ConfigError at the first that is
        wrong.
        """
        lists: tuple[tuple[List, Iterable[str]], ...] = (
            ("deny", deny),
            ("ask", ask),
            ("allow", allow),
        )
        return RuleSet(
            parse_rule(text, name, layer=layer, root=root)
            for name, texts in lists
            for text in texts
        )

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __add__(self, other: Iterable[Rule]) -> RuleSet:
        return RuleSet((*self.rules, *other))

    def lint(self, tools: Iterable[str] = ()) -> list[str]:
        """What is probably a mistake, one sentence each. `tools` are the full names there are, if
        known.
        """
        known = frozenset(tools)
        found = [problem for rule in self.rules for problem in _lint_rule(rule, known)]
        return [*found, *self._shadowed()]

    def _shadowed(self) -> Iterator[str]:
        stronger: dict[List, tuple[Rule, ...]] = {
            "deny": (),
            "ask": self.deny,
            "allow": (*self.deny, *self.ask),
        }
        for index, rule in enumerate(self.rules):
            for other in stronger[rule.list]:
                if _covers(other, rule):
                    yield (
                        f"`{rule.text}` ({rule.list}) never decides: `{other.text}` "
                        f"({other.list}) comes first"
                    )
                    break
            else:
                for other in self.rules[:index]:
                    if other.list == rule.list and _covers(other, rule):
                        yield f"`{rule.text}` ({rule.list}) adds nothing to `{other.text}`"
                        break


def names_tool(rule: Rule, full_name: str) -> bool:
    """True if a rule that is no family rule names this tool.

    `mcp__srv` and `mcp__srv__tool` name the tools `srv__...` that Ferrule makes of a server's. A
    tool that had to give its name to one of a file keeps the deny and ask rules for that name; what
    is allowed is the one that is seen.
    """
    pattern = rule.tool
    if pattern == full_name:
        return True
    if rule.list != "allow" and full_name.startswith(f"{OWN}::"):
        return _wild(pattern, full_name) or _wild(pattern, full_name.removeprefix(f"{OWN}::"))
    if pattern.startswith("mcp__"):
        name = full_name.removeprefix("mcp__")
        wanted = pattern[5:]
        if "__" not in wanted and name.startswith(f"{wanted}__"):
            return True
        return _wild(wanted, name)
    return _wild(pattern, full_name)


def _wild(pattern: str, name: str) -> bool:
    if "*" not in pattern:
        return pattern == name
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), name) is not None


def _covers(wide: Rule, narrow: Rule) -> bool:
    """True if `wide` surely matches whatever `narrow` matches. False where we cannot tell."""
    if wide.kind != narrow.kind or (not wide.kind and not names_tool(wide, narrow.tool)):
        return False
    if wide.specifier is None:
        return True
    if narrow.specifier is None or wide.root != narrow.root:
        return False
    return wide.specifier == narrow.specifier or _widened(
        wide.specifier, narrow.specifier, wide.kind
    )


def _widened(wide: str, narrow: str, kind: str) -> bool:
    if kind == "command":
        prefix = _prefix(wide)
        return prefix is not None and (
            narrow == prefix or narrow.startswith((f"{prefix} ", f"{prefix}:"))
        )
    if kind in ("read", "write") and wide.endswith("/**") and not re.search(r"[*?\[]", wide[:-3]):
        return narrow.startswith(wide[:-2])
    return False


def _prefix(specifier: str) -> str | None:
    for ending in (":*", " *"):
        if specifier.endswith(ending) and "*" not in specifier[:-2]:
            return specifier[:-2]
    return None


def _lint_rule(rule: Rule, known: frozenset[str]) -> Iterator[str]:
    where = f"`{rule.text}` ({rule.list}, {rule.layer})"
    if not rule.kind and known and not any(names_tool(rule, name) for name in known):
        also = {
            "Write": "Edit",
            "MultiEdit": "Edit",
            "Grep": "Read",
            "Glob": "Read",
            "LS": "Read",
        }.get(rule.tool)
        instead = f": write `{also}(...)`" if also else ""
        yield f"{where} can never match: there is no tool `{rule.tool}`{instead}"
    if rule.specifier is None:
        if rule.tool == "*" and rule.list == "allow":
            yield f"{where} allows every tool"
        return
    yield from _LINTS.get(rule.kind, _no_lint)(rule, where)


def _no_lint(rule: Rule, where: str) -> Iterator[str]:
    return iter(())


def _lint_command(rule: Rule, where: str) -> Iterator[str]:
    specifier = rule.specifier or ""
    if rule.list == "allow":
        words = specifier.replace(":*", " *").split()
        first = words[0] if words else ""
        if first in RUNNERS | SHELLS | INTERPRETERS and words[1:] == ["*"]:
            yield f"{where} allows any command: `{first}` runs what it is given"
        if "*" in first and first != "*":
            yield f"{where} has no word boundary: `{first}` also begins the names of other programs"
        if re.search(r"[^\\](\||&&|;|\n)|[<>`]|\$\(", specifier) and "*" in specifier:
            yield (
                f"{where} can never match: a compound command is judged part by part; write a "
                "rule per part"
            )


def _lint_path(rule: Rule, where: str) -> Iterator[str]:
    specifier = (rule.specifier or "").lstrip("/")
    if rule.list != "deny" and not re.search(r"[*?\[]", specifier):
        why = DEFAULT.check(specifier.removeprefix("~/"), write=rule.kind == "write")
        if why:
            yield f"{where} can never let anything through: {why}"


def _lint_url(rule: Rule, where: str) -> Iterator[str]:
    host = (rule.specifier or "").removeprefix("domain:").strip()
    if "/" in host or ":" in host:
        yield f"{where} can never match: a domain has no scheme, port or path"


_LINTS = {"command": _lint_command, "read": _lint_path, "write": _lint_path, "url": _lint_url}
