"""Compare tool names in permission rules with the existing tools: a misspelled one does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.similar_names import measure_similarity, suggest_names
from ferrule.permissions.rules import RULE_FAMILIES, PermissionRule, find_similar_family
from ferrule.tools.catalog import Catalog

_PLAIN = compile_lazily(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A name without server or namespace; `server__tool` and `space::name` may be added later."""
_CAPITALIZED = compile_lazily(r"[A-Z][A-Za-z]*")
_NO_SUBJECT = "no parameter of `{}` is marked as a path, a command or a URL: it matches no call"
_NO_SUBJECT_HINT = (
    "write the name alone, or mark the parameter, as in `Annotated[str, WRITES]`; there are READS, "
    "WRITES, COMMAND and URL"
)
_MIN_RATIO = 0.9
_MIN_WORD_RATIO = 0.7


def check_rule_names(
    rules: Iterable[PermissionRule],
    catalog: Catalog,
    more: Callable[[], Iterable[str]] = tuple,
    *,
    can_grow: bool = False,
) -> None:
    """Raise ConfigError for rules that name no tool or can match no call. All of them are named.

    A rule with parentheses matches what marked parameters name: a tool without any is never meant
    by it. Rules that name no tool are: a word with a capital letter, which can only be a kind of
    access; a name that is nearly that of a tool; and any unknown name in a rule for this run
    alone, whose tools are all known unless scripts may register some. Another plain name is
    allowed: its tool may come from a file of another folder.

    Args:
        rules: The rules.
        catalog: The tools of the run.
        more: Gives further names that a run may have; called only if a name is not in the catalog.
        can_grow: Whether scripts may register tools during the run (`tools.register`).
    """
    rules = list(rules)
    problems = [
        (f"rule `{rule.text}` ({rule.list}): {_NO_SUBJECT.format(rule.tool)}", _NO_SUBJECT_HINT)
        for rule in rules
        if rule.specifier is not None and _has_no_subject(rule, catalog)
    ]
    unknown = [rule for rule in rules if _is_unknown(rule, catalog)]
    if unknown:
        known = {*(tool.full_name for tool in catalog), *more()}
        problems += [
            (f"rule `{rule.text}` ({rule.list}): {problem}", hint)
            for rule in unknown
            if rule.tool not in known
            for problem, hint in _find_problem(rule, known, can_grow=can_grow)
        ]
    if len(problems) == 1:
        raise ConfigError(problems[0][0], hint=problems[0][1])
    if problems:
        raise ConfigError("\n".join("; ".join(problem) for problem in problems))


def find_tool_problem(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return what is wrong with the name of a tool that there is not, and a hint."""
    everything = sorted(known)
    near = _nearest(name, everything)
    known = [near] if near else everything
    hint = suggest_names(name, known, "`ferrule tools list` lists the tools")
    return f"there is no tool `{name}`", hint


def _find_problem(
    rule: PermissionRule, known: Iterable[str], *, can_grow: bool
) -> Iterator[tuple[str, str]]:
    if _CAPITALIZED.fullmatch(rule.tool):
        families = ", ".join(f"`{name}`" for name in RULE_FAMILIES)
        similar = find_similar_family(rule.tool)
        hint = (
            f"did you mean `{similar}`? there are {families}"
            if similar
            else f"there are {families}"
        )
        yield f"`{rule.tool}` is neither a tool nor a kind of access", hint
    elif (rule.layer == "flags" and not can_grow) or _nearest(rule.tool, known):
        yield find_tool_problem(rule.tool, known)


def _has_no_subject(rule: PermissionRule, catalog: Catalog) -> bool:
    tool = None if rule.kind else catalog.get(rule.tool)
    return tool is not None and not tool.touches


def _is_unknown(rule: PermissionRule, catalog: Catalog) -> bool:
    if rule.kind or rule.tool in catalog:
        return False
    return bool(_PLAIN.fullmatch(rule.tool) or _CAPITALIZED.fullmatch(rule.tool))


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that this one most likely misspells, or ""."""
    alike = [one for one in known if _is_misspelled(name, one)]
    return max(alike, key=lambda one: (measure_similarity(name, one), one), default="")


def _is_misspelled(name: str, known: str) -> bool:
    """Whether one name is a misspelling of the other, as `reed_file` is.

    `git_stash_pop` and `git_stash_drop` are two different names.
    """
    words = name.split("_")
    others = known.split("_")
    if len(words) != len(others):
        return measure_similarity(name, known) >= _MIN_RATIO
    return all(
        measure_similarity(word, other) >= _MIN_WORD_RATIO
        for word, other in zip(words, others, strict=True)
    )
