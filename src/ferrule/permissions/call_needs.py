"""What a call touches, worked out once: its needs, the file names in its commands, and built-in
refusals.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from ferrule.core.frozen import frozen
from ferrule.tools.definition import SideEffect, Subject, Tool

from .commands.shell_words import ANY, BRACE, ONE, UNKNOWN, literal
from .commands.syntax import Analysis
from .protected_names import Names
from .rule_matching import Case, Need, host_of, normal

_EXPLAINS = {
    SideEffect.NONE: ("read", "write", "command", "url", "agent", "skill"),
    SideEffect.READ: ("read", "url", "agent", "skill"),
    SideEffect.WRITE: ("write",),
    SideEffect.EXECUTE: ("command",),
    SideEffect.EXTERNAL: ("url", "agent"),
    SideEffect.UNDECLARED: ("command",),
}
"""Which kinds of subject say all that a side effect does. Without one a family rule does not
suffice.
"""


@frozen
class Surroundings:
    """Where calls happen. `outside` says what naming a path outside the workspace does to a
    command.
    """

    root: str
    home: str
    names: Names | None
    outside: Literal["deny", "ask"] = "deny"


def build_case(tool: Tool, values: Mapping[str, Any], around: Surroundings) -> Case:
    """The case of one call. No I/O."""
    subjects = tool.subjects({name: _readable(values.get(name)) for name in tool.touches})
    commands = [subject.value for subject in subjects if subject.kind == "command"]
    variables = tuple(
        v for subject in subjects if subject.kind == "variables" for v in _each(subject)
    )
    analyses = _analysed(commands, variables, around) if commands else ()
    needs = [need for subject in subjects for need in _need(subject, around)]
    needs += [need for analysis in analyses for need in _command_needs(analysis, around)]
    explained = _EXPLAINS[SideEffect(tool.side_effect)]
    if not any(
        need.kind in explained for need in needs if need.analysis is None or need.kind == "command"
    ):
        needs.append(Need("tool", tool.full_name))
    labels = sorted({label for analysis in analyses for label in analysis.labels})
    refusal = next(_refusals(tool, subjects, analyses, around), "")
    unsure = next(_unsure(analyses, around), "")
    if variables:
        refusal, unsure = _judged_variables(variables, refusal, unsure)
    named = tuple(path for analysis in analyses for path in _named(analysis, around))
    return Case(tool, tool.full_name, tuple(needs), analyses, named, tuple(labels), refusal, unsure)


def _analysed(
    commands: list[str | tuple[str, ...]], variables: tuple[str, ...], around: Surroundings
) -> tuple[Analysis, ...]:
    from .commands.analysis import (
        analyse,
    )  # a third of the guard's start-up, and most runs have no command

    analyses = (
        analyse(c, root=around.root, home=around.home, names=around.names) for c in commands
    )
    return (
        tuple(_with_variables(a, variables, around) for a in analyses)
        if variables
        else tuple(analyses)
    )


def _each(subject: Subject) -> tuple[str, ...]:
    return (subject.value,) if isinstance(subject.value, str) else subject.value


def _with_variables(
    analysis: Analysis, variables: tuple[str, ...], around: Surroundings
) -> Analysis:
    """As if they were written before the command: every part gets them, and what they name is
    judged.
    """
    from .commands.path_arguments import judge_paths  # as `command` above
    from .variables import beside  # few calls set any

    given = beside(variables)
    values = tuple(literal(variable.partition("=")[2]) for variable in variables)
    loose = (*analysis.loose, *values)
    findings, doubts = judge_paths(analysis.parts, loose, around.root, around.home, around.names)
    return replace(
        analysis,
        beside=given,
        parts=tuple(replace(part, beside=given) for part in analysis.parts),
        loose=loose,
        labels=analysis.labels | {finding.label for finding in findings if finding.label},
        doubts=tuple(dict.fromkeys((*analysis.doubts, *doubts))),
        findings=tuple(dict.fromkeys((*analysis.findings, *findings))),
    )


def _judged_variables(variables: tuple[str, ...], refusal: str, unsure: str) -> tuple[str, str]:
    """Why a call that sets these is refused, and why it is asked about; what was found before comes
    first.
    """
    from .variables import doubts, refusals  # few calls set any

    return refusal or next(refusals(variables), ""), unsure or next(doubts(variables), "")


def _readable(value: object) -> object:
    """A touched argument as text: what is neither text nor a list of texts (a `Path`, a URL) has a
    spelling too.
    """
    if value is None or isinstance(value, (str, Mapping)):
        return cast("object", value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [str(item) for item in cast("list[object]", value)]
    return str(value)


def _need(subject: Subject, around: Surroundings) -> Iterator[Need]:
    if subject.kind in ("command", "variables"):
        return  # judged by their parts, and with them
    value = subject.value if isinstance(subject.value, str) else " ".join(subject.value)
    if subject.kind in ("read", "write"):
        yield Need(subject.kind, normal(value, around.root, around.home))
    elif subject.kind == "url":
        yield Need("url", host_of(value))
    else:
        yield Need(subject.kind, value)


def _command_needs(analysis: Analysis, around: Surroundings) -> Iterator[Need]:
    for part in analysis.parts:
        if part.words or part.assignments:
            yield Need("command", part.raw, part, analysis)
        for redirect in part.redirects:
            text = redirect.target.text
            if redirect.write and not text.startswith(
                ("/dev/null", "/dev/std", "/dev/tty", "/dev/fd/")
            ):
                path = normal(text, around.root, around.home) if redirect.target.known else ""
                yield Need("write", path, None, analysis)
    if not analysis.parts:
        yield Need("command", analysis.text, None, analysis)


def _named(analysis: Analysis, around: Surroundings) -> Iterator[tuple[str, bool]]:
    from .commands.path_arguments import located_paths  # as `command` above

    for named, folders in located_paths(analysis.parts, analysis.loose, around.root):
        if not any(mark in named.text for mark in (UNKNOWN, ANY, ONE, BRACE)):
            for folder in folders:
                yield normal(named.text, folder, around.home), named.write


def _refusals(
    tool: Tool, subjects: tuple[Subject, ...], analyses: tuple[Analysis, ...], around: Surroundings
) -> Iterator[str]:
    for subject in subjects:
        if subject.kind in ("read", "write") and isinstance(subject.value, str):
            yield from refused_path(subject.value, subject.kind == "write", around)
    for analysis in analyses:
        if analysis.over_limit:
            yield f"the command cannot be judged: {analysis.over_limit}; split it into smaller ones"
        for finding in analysis.findings:
            if finding.sure and (finding.label != "outside_workspace" or around.outside == "deny"):
                yield finding.why


def refused_path(path: str, write: bool, around: Surroundings) -> Iterator[str]:
    """Why a tool may not touch this path at all: outside the workspace, reserved or secret."""
    if "\0" in path:
        yield "the path holds a NUL character"
        return
    absolute = normal(path, around.root, around.home)
    if absolute != around.root and not absolute.startswith(around.root.rstrip("/") + "/"):
        yield f"`{path}` lies outside the workspace"
        return
    name = posixpath.relpath(absolute, around.root)
    if around.names is not None and name != ".":
        why = around.names.check(name, write=write)
        if why:
            yield f"`{path}` {why}" if why.startswith("may") else f"`{path}` is {why}"


def _unsure(analyses: tuple[Analysis, ...], around: Surroundings) -> Iterator[str]:
    for analysis in analyses:
        if analysis.problem:
            yield f"the command cannot be judged: {analysis.problem}"
        yield from analysis.doubts
        for finding in analysis.findings:
            if finding.label == "outside_workspace" and (
                around.outside == "ask" or not finding.sure
            ):
                yield finding.why
