"""Analysis of a call: what it needs permission for, and what no rule can allow.

`analyse_call` turns a tool and its arguments into a `Case` (`rule_matching`): needs, the files that
its commands name, built-in refusals and doubts. No I/O.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from ferrule.core.value_class import frozen
from ferrule.tools.definition import Confinement, SideEffect, Subject, Tool

from . import command_analysis
from .command_analysis.shell_words import UNKNOWN, UNKNOWN_MARKS, literal_word
from .command_analysis.syntax import CommandAnalysis, Finding
from .protected_names import ProtectedNames
from .rule_matching import AnalysedCall, RequiredAccess, host_of_url, normalise_path

_EXPLAINS = {
    SideEffect.NONE: ("read", "write", "command", "url", "agent", "skill"),
    SideEffect.READ: ("read", "url", "agent", "skill"),
    SideEffect.WRITE: ("write",),
    SideEffect.EXECUTE: ("command",),
    SideEffect.EXTERNAL: ("url", "agent"),
    SideEffect.UNDECLARED: ("command",),
}
"""The kinds of need that describe a side effect completely.

A call without any of these also needs a rule that names its tool.
"""


START_FOLDER = "cwd"
"""The parameter of a command tool that names the folder in which its command starts."""


@frozen
class OpenedFolders:
    """Folders outside the workspace that a person opened for commands."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()

    def cover(self, finding: Finding) -> bool:
        """Return whether a finding is about nothing but a file in one of these folders."""
        if finding.label != "outside_workspace" or not finding.place:
            return False
        folders = self.writable if finding.is_written else (*self.readable, *self.writable)
        return any(
            finding.place == folder or finding.place.startswith(f"{folder}/") for folder in folders
        )

    def add_confinement(self, confinement: Confinement) -> OpenedFolders:
        """Return these folders with those that every confined command has."""
        return OpenedFolders(
            (*self.readable, *confinement.readable), (*self.writable, *confinement.own)
        )


NOTHING_OPENED = OpenedFolders()


@frozen
class CallContext:
    """Where calls happen.

    Attributes:
        root: The workspace.
        home: The folder that `~` stands for.
        names: Names that no tool may touch; None for no such names.
        outside: What happens to a command that names a path outside the workspace.
        opened: Folders outside that a command may name.
        start: The folder in which commands start, relative to the workspace.
        own: Folders of the session alone, which file tools see as its commands do.
    """

    root: str
    home: str
    names: ProtectedNames | None
    outside: Literal["deny", "ask"] = "deny"
    opened: OpenedFolders = NOTHING_OPENED
    start: str = ""
    own: tuple[str, ...] = ()

    def starting_in(self, folder: str) -> CallContext:
        """Return the same for a call whose commands start in a folder, relative to the workspace.

        A folder outside is refused as such; then what its commands name does not matter.
        """
        absolute = normalise_path(folder, self.root, self.home)
        below = self.root.rstrip("/") + "/"
        if not absolute.startswith(below):
            return replace(self, start="")
        return replace(self, start=absolute.removeprefix(below))

    @property
    def starting_folder(self) -> str:
        """The absolute path of the folder in which commands start."""
        return posixpath.normpath(posixpath.join(self.root, self.start))


def start_commands(tool: Tool, values: Mapping[str, Any], context: CallContext) -> CallContext:
    """Return the context with the folder in which a call says that its commands start."""
    folder = values.get(START_FOLDER) if START_FOLDER in tool.touches else None
    return context.starting_in(folder) if isinstance(folder, str) and folder else context


def analyse_call(tool: Tool, values: Mapping[str, Any], context: CallContext) -> AnalysedCall:
    """Analyse a call with these validated arguments."""
    subjects = tool.subjects({name: _to_text(values.get(name)) for name in tool.touches})
    commands: list[str | tuple[str, ...]] = []
    variables: tuple[str, ...] = ()
    for subject in subjects:
        if subject.kind == "command":
            commands.append(subject.value)
        elif subject.kind == "variables":
            variables += _texts_of(subject)
    if commands:
        context = start_commands(tool, values, context)
    analyses = _analyse_commands(commands, variables, context) if commands else ()
    forms = [] if tool.command_form is None else [tool.command_form(values)]

    needs: list[RequiredAccess] = []
    for subject in subjects:
        needs += _needs_of_subject(subject, context)
    for analysis in analyses:
        needs += _needs_of_command(analysis, context)
    if not _is_explained(tool, needs):
        needs.append(RequiredAccess("tool", tool.full_name))

    labels: set[str] = set()
    named_files: list[tuple[str, bool]] = []
    possible_files: list[tuple[str, bool]] = []
    for analysis in analyses:
        labels |= _labels_of(analysis, context)
        for path, is_written, is_sure in _files_named_in(analysis, context):
            (named_files if is_sure else possible_files).append((path, is_written))
    doubts = list(_doubts(analyses, variables, context))
    return AnalysedCall(
        tool=tool,
        name=tool.full_name,
        needs=tuple(needs),
        analyses=analyses,
        command_form=_analyse_commands(forms, (), context) if forms else (),
        named_files=tuple(named_files),
        possible_files=tuple(dict.fromkeys(possible_files)),
        labels=tuple(sorted(labels)),
        refusal=next(_refusals(tool, subjects, analyses, variables, context), ""),
        doubt=doubts[0][0] if doubts else "",
        firm_doubt=next((why for why, about in doubts if about != "files"), ""),
        program_doubt=next((why for why, about in doubts if about == "programs"), ""),
        brings_content=tool.brings_content(values),
    )


def _labels_of(analysis: CommandAnalysis, around: CallContext) -> frozenset[str]:
    """Return the labels of a command. What lies in an opened folder is not outside."""
    outside = [finding for finding in analysis.findings if finding.label == "outside_workspace"]
    if outside and all(map(around.opened.cover, outside)):
        return analysis.labels - {"outside_workspace"}
    return analysis.labels


def _is_explained(tool: Tool, needs: list[RequiredAccess]) -> bool:
    """Return whether the needs describe all that the tool does."""
    kinds = _EXPLAINS[SideEffect(tool.side_effect)]
    for need in needs:
        if need.kind in kinds and (need.analysis is None or need.kind == "command"):
            return True
    return False


def _texts_of(subject: Subject) -> tuple[str, ...]:
    return (subject.value,) if isinstance(subject.value, str) else subject.value


def _to_text(value: object) -> object:
    """Return a touched argument (a `Path`, a URL object, ...) as text or a list of texts."""
    if value is None or isinstance(value, (str, Mapping)):
        return cast("object", value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [str(item) for item in cast("list[object]", value)]
    return str(value)


# ---- commands


def _analyse_commands(
    commands: Sequence[str | tuple[str, ...]], variables: tuple[str, ...], around: CallContext
) -> tuple[CommandAnalysis, ...]:
    analyses = [
        command_analysis.analyse_command(
            command, root=around.root, home=around.home, names=around.names, start=around.start
        )
        for command in commands
    ]
    if variables:
        analyses = [_add_variables(analysis, variables, around) for analysis in analyses]
    return tuple(analyses)


def _add_variables(
    analysis: CommandAnalysis, variables: tuple[str, ...], around: CallContext
) -> CommandAnalysis:
    """Return the analysis as if the variables were set before the command.

    Every part of the command gets them, and the paths in them are judged.
    """
    from .command_variables import format_assignments  # few calls set any

    assignments = format_assignments(variables)
    values = tuple(literal_word(variable.partition("=")[2]) for variable in variables)
    loose = (*analysis.loose, *values)
    findings, doubts = command_analysis.judge_paths(
        analysis.parts, loose, around.root, around.home, around.names, start=around.starting_folder
    )
    return replace(
        analysis,
        call_variables=assignments,
        parts=tuple(replace(part, call_variables=assignments) for part in analysis.parts),
        loose=loose,
        labels=analysis.labels | {finding.label for finding in findings if finding.label},
        doubts=tuple(dict.fromkeys((*analysis.doubts, *doubts))),
        file_doubts=analysis.file_doubts.union(doubts),
        findings=tuple(dict.fromkeys((*analysis.findings, *findings))),
    )


# ---- needs


def _needs_of_subject(subject: Subject, around: CallContext) -> Iterator[RequiredAccess]:
    if subject.kind in ("command", "variables"):
        return  # commands have needs of their own, which include the variables
    value = " ".join(_texts_of(subject))
    if subject.kind in ("read", "write"):
        yield RequiredAccess(subject.kind, normalise_path(value, around.root, around.home))
    elif subject.kind == "url":
        yield RequiredAccess("url", host_of_url(value))
    else:
        yield RequiredAccess(subject.kind, value)


def _needs_of_command(analysis: CommandAnalysis, around: CallContext) -> Iterator[RequiredAccess]:
    closure = command_analysis.possible_folders(analysis.parts, around.starting_folder)
    for part in analysis.parts:
        if part.words or part.assignments:
            yield RequiredAccess("command", part.raw, part, analysis)
        written = [redirect.target for redirect in part.redirects if redirect.write]
        for target in written:
            if not target.is_known:
                yield RequiredAccess("write", "", None, analysis)
                continue
            for folder in command_analysis.absolute_folders(part, around.starting_folder, closure):
                path = normalise_path(target.text, folder, around.home)
                if not command_analysis.is_device(path):
                    yield RequiredAccess("write", path, None, analysis)
    if not analysis.parts:
        yield RequiredAccess("command", analysis.text, None, analysis)


_SOME_NAME = "\ue000"
"""Stands for what is unknown in a name: what a rule says of this, it says of any name."""


def _files_named_in(
    analysis: CommandAnalysis, around: CallContext
) -> Iterator[tuple[str, bool, bool]]:
    """Yield the files that a command names, as `(absolute path, written, whether it is sure)`.

    What is not sure has marks (`shell_words`) for what only the shell knows.
    """
    for named, folders in command_analysis.find_paths(
        analysis.parts, analysis.loose, around.starting_folder
    ):
        is_known = not any(mark in named.text for mark in UNKNOWN_MARKS)
        if not is_known and not named.text.strip(f"{UNKNOWN}/"):
            continue  # nothing of it is known
        for folder in folders:
            path = normalise_path(named.text, folder, around.home)
            yield re.sub("[\0-\3]+", _SOME_NAME, path), named.is_written, True
            if not is_known and not named.is_only_listed:
                yield path, named.is_written, False


# ---- refusals and doubts


def _refusals(
    tool: Tool,
    subjects: tuple[Subject, ...],
    analyses: tuple[CommandAnalysis, ...],
    variables: tuple[str, ...],
    around: CallContext,
) -> Iterator[str]:
    """Yield why no rule can allow the call."""
    for subject in subjects:
        if subject.kind in ("read", "write") and isinstance(subject.value, str):
            yield from find_path_refusals(subject.value, subject.kind == "write", around)
    for analysis in analyses:
        if analysis.over_limit:
            yield f"the command cannot be judged: {analysis.over_limit}; split it into smaller ones"
        for finding in analysis.findings:
            if around.opened.cover(finding) or not finding.is_sure:
                continue
            if finding.label != "outside_workspace" or around.outside == "deny":
                yield f"{finding.why}{_describe_opening(finding)}"
    if variables:
        from .command_variables import find_refusals  # few calls set any

        yield from find_refusals(variables)


def _describe_opening(finding: Finding) -> str:
    """Return how a person lets commands name a path outside, empty if it is not about that."""
    if not finding.place or not finding.place.isprintable():
        return ""
    key = "writable" if finding.is_written else "readable"
    return f"; a person can open it with `sandbox.{key}`"


def find_path_refusals(path: str, write: bool, context: CallContext) -> Iterator[str]:
    """Yield why no tool may touch this path: it is outside the workspace, reserved or secret."""
    if "\0" in path:
        yield "the path contains a NUL character"
        return
    absolute = normalise_path(path, context.root, context.home)
    if absolute != context.root and not absolute.startswith(context.root.rstrip("/") + "/"):
        if any(absolute == own or absolute.startswith(f"{own}/") for own in context.own):
            return
        yield f"`{path}` lies outside the workspace"
        return
    name = posixpath.relpath(absolute, context.root)
    if context.names is not None and name != ".":
        why = context.names.check(name, write=write)
        if why:
            yield f"`{path}` {why}" if why.startswith("may") else f"`{path}` is {why}"


def _doubts(
    analyses: tuple[CommandAnalysis, ...], variables: tuple[str, ...], around: CallContext
) -> Iterator[tuple[str, Literal["files", "values", "programs"]]]:
    """Yield why a person has to look at the call, whatever rules allow, and what each is about."""
    for analysis in analyses:
        if analysis.problem:
            yield f"the command cannot be judged: {analysis.problem}", "programs"
        for why in analysis.doubts:
            if why in analysis.file_doubts:
                yield why, "files"
            else:
                yield why, "values" if why in analysis.value_doubts else "programs"
        for finding in analysis.findings:
            asks = around.outside == "ask" or not finding.is_sure
            if around.opened.cover(finding):
                continue
            if finding.label == "outside_workspace" and asks:
                yield finding.why, "programs" if finding.is_sure else "files"
    if variables:
        from .command_variables import find_doubts  # few calls set any

        for why in find_doubts(variables):
            yield why, "programs"
