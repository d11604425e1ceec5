"""From a request to what exactly would run, or the reason why it may not. No I/O.

There are two ways to say what to run, with the same checks:

* a list of words: run as it is, without a shell; nothing is expanded;
* text: split at blanks with quotes respected, and run without a shell too, if that means the same.
  Text that means something else in a shell (pipes, redirects, `;`, `$HOME`, `~`, `cd`) is run by
  one where a shell may run, and refused with a hint how to write it where none may.

Its meaning is found by `permissions.command_analysis.analysis`, which the gate used for its rules
too; a difference between the two readings is a refusal. Reserved and secret names are the gate's
task; only the folder the command starts in is judged again here, since the gate reads file names
from the root.

Not protected: what an allowed program does to files (the sandbox's task), and programs under names
that the tables of `permissions.command_analysis.program_facts` do not list.
"""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.permissions.call_analysis import OpenedFolders
from ferrule.permissions.command_analysis.analysis import (
    CommandAnalysis,
    CommandPart,
    analyse_command,
)
from ferrule.permissions.command_analysis.path_arguments import judge_paths
from ferrule.permissions.command_analysis.program_facts import (
    RUNNERS,
    SHELLS,
    program_name,
    word_set,
)
from ferrule.permissions.command_analysis.shell_words import UNKNOWN, literal_word
from ferrule.permissions.filesystem.workspace import Workspace

from .confinement import find_confinement
from .policy import CommandPolicy

SHELL_COMMAND = ("bash", "--noprofile", "--norc", "-c")
LIST_PROCESSES = frozenset({"pkill", "pgrep", "ps", "killall"})
"""Programs that find processes by the words they were started with."""
_HIDDEN_TEXT = "FERRULE_COMMAND"

_SHELL_ONLY = word_set(
    """. alias bg builtin caller cd command compgen complete compopt declare dirs disown enable eval
    exec exit export fc fg hash help history jobs let local logout mapfile popd pushd read readarray
    readonly return set shift shopt source suspend times trap type typeset ulimit umask unalias
    unset wait"""
)
"""Commands that only a shell has: no program of that name does the same."""

_FULL_SCREEN = word_set(
    "vi vim nvim view nano pico emacs micro joe mcedit top htop btop tig lazygit"
)
"""Programs that do nothing without a terminal, unless an option says otherwise."""
_PAINTS_ALWAYS = frozenset({"watch"})
"""Programs that do nothing without a terminal, whatever their options."""

_NO_SHELL = (
    "no shell may run (it does where a sandbox confines commands, or where a person has set "
    "`commands.shell: true`)"
)
NO_SHELL_HINT = (
    "one program is started without a shell: give its words as a list, like "
    '["grep", "-rn", "TODO", "src"], and make one call for each step'
)


@frozen
class CommandPlan:
    """What would run: its words, and what is known of them.

    `literal_globs` are words that a shell would have expanded; `text` is what was given to a shell,
    empty without one.
    """

    argv: tuple[str, ...]
    analysis: CommandAnalysis
    text: str = ""
    literal_globs: tuple[str, ...] = ()

    @property
    def uses_shell(self) -> bool:
        """Whether a shell reads the command."""
        return bool(self.text)

    def format_command_line(self) -> str:
        """Return the exact command line, quoted for a shell, control characters made visible."""
        return make_printable(shlex.join(self.argv))


def hide_text(
    words: Sequence[str], variables: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a shell's words without the text that it reads, and the variables that hold the text.

    `pkill -f server.py` and `kill $(pgrep -f server.py)` would end the shell that runs them, since
    the text is among its own words.
    """
    text = f'eval "unset {_HIDDEN_TEXT}\n${_HIDDEN_TEXT}"'
    return (*SHELL_COMMAND, text), {**variables, _HIDDEN_TEXT: words[-1]}


def read_command(command: str | Sequence[str], *, shell: bool, workspace: Workspace) -> CommandPlan:
    """Find the words that would run and their meaning, but do not judge them. Raises RetryCall."""
    if not isinstance(command, str) and shell:
        raise RetryCall("a shell takes the command as text; a list of words is run without a shell")
    root = str(workspace.root)
    home = os.environ.get("HOME", "")
    analysis = analyse_command(command, root=root, home=home, names=workspace.names)
    if analysis.over_limit or (analysis.problem and not shell):
        why = analysis.over_limit or analysis.problem
        raise RetryCall(
            f"`{make_printable(analysis.text)[:200]}` was not run: {why}; {NO_SHELL_HINT}"
        )
    if shell:
        return CommandPlan((*SHELL_COMMAND, str(command)), analysis, str(command))
    if isinstance(command, str):
        argv, globs = _split_text(command, analysis)
    else:
        argv = tuple(command)
        globs = ()
    # The words that will run are judged, however they were written: one check for both forms.
    return CommandPlan(argv, analyse_command(argv, root=root, names=workspace.names), "", globs)


def needs_shell(text: str, workspace: Workspace) -> bool:
    """Return whether a text means something else without a shell than with one."""
    root = str(workspace.root)
    home = os.environ.get("HOME", "")
    analysis = analyse_command(text, root=root, home=home, names=workspace.names)
    try:
        words, globs = _split_text(text, analysis)
    except RetryCall:
        return True
    return bool(globs) or words[0] in _SHELL_ONLY


def check_plan(
    planned: CommandPlan,
    *,
    policy: CommandPolicy,
    resources: Mapping[type, object],
    folder: str = "",
) -> None:
    """Raise ToolFailed if the settings forbid this, or it names what it may not from `folder`.

    Args:
        planned: The command.
        policy: The settings, with what a person opened for the session.
        resources: What the run was given; its workspace is among it.
        folder: Where the command starts, relative to the workspace.
    """
    if planned.uses_shell:
        _check_shell(planned.analysis, policy)
    _check_programs(planned.analysis, policy)
    _check_terminal(planned.analysis)
    _check_folder(planned.analysis, {**resources, CommandPolicy: policy}, folder)


def _check_shell(analysis: CommandAnalysis, policy: CommandPolicy) -> None:
    if not policy.shell_allowed:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"a shell was asked for and not run: {_NO_SHELL}; {NO_SHELL_HINT}",
        )
    if analysis.problem:
        raise RetryCall(f"the command was not run: {analysis.problem}; write it more plainly")


def _split_text(text: str, analysis: CommandAnalysis) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words and wildcards of a text that a shell would read as the same words."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RetryCall(
            f"`{make_printable(text)[:200]}` was not run: {str(error).lower()}; {NO_SHELL_HINT}"
        ) from None
    # The part that is the whole text; what `sh -c` or `find -exec` start are parts of their own.
    part = next((part for part in analysis.parts if part.raw == analysis.text), None)
    if part is None or part.redirects or part.assignments or len(part.words) != len(words):
        raise RetryCall(_needs_shell(text))
    globs: list[str] = []
    for word, read_as in zip(words, part.words, strict=True):
        if read_as.is_known and read_as.text == word:
            continue
        if read_as.is_known or read_as.splits or UNKNOWN in read_as.text:
            raise RetryCall(_needs_shell(text))
        globs.append(word)
    return tuple(words), tuple(globs)


def _needs_shell(text: str) -> str:
    return (
        f"`{make_printable(text)[:200]}` was not run: it uses a shell's pipes, redirects, lists "
        f"or expansions, and {_NO_SHELL}; {NO_SHELL_HINT}. For these characters as text, quote "
        "them in single quotes"
    )


def _check_programs(analysis: CommandAnalysis, policy: CommandPolicy) -> None:
    """Check shells and safe mode for every part.

    That includes parts behind pipes and wrappers, in `find -exec` and in `sh -c`.
    """
    shells: list[str] = []
    for part in analysis.parts:
        shells += _started_shells(part)
    if shells and not policy.shell_allowed:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`{shells[0]}` was not run: {_NO_SHELL}; {NO_SHELL_HINT}"
        )
    if not policy.safe_mode.on:
        return
    for part in analysis.parts:
        # The name as it is written: `./ls` is another program than `ls`.
        names = [
            word.text if word.is_known else "?"
            for word in (*part.words[:1], *part.words_after_wrappers[:1])
        ]
        refused = policy.safe_mode.find_refusal(names)
        effects = _effects(part)
        if refused or effects:
            reason = refused or f"safe mode is on and `{effects[0]}` does more than reading"
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"`{make_printable(part.raw)[:200]}` was not run: {reason}; use another tool, or "
                f"ask "
                "the person",
            )


def _check_terminal(analysis: CommandAnalysis) -> None:
    """Refuse what would only wait for keys until its time is over."""
    for part in analysis.parts:
        words = [word.text for word in part.words_after_wrappers]
        name = program_name(words[0]) if words else ""
        # With an option it may run without one: `vim -es`, `emacs --batch`, `top -b`.
        has_option = any(word.startswith("-") for word in words[1:])
        if name in _PAINTS_ALWAYS or (name in _FULL_SCREEN and not has_option):
            raise RetryCall(
                f"`{name}` was not run: it needs a terminal, and commands have none; use a tool "
                "that changes files, or a program that prints"
            )


def _effects(part: CommandPart) -> list[str]:
    """Return what a part does besides reading."""
    found = [hazard or "an expansion" for hazard in part.hazards]
    if part.assignments:
        found.append(part.assignments[0])
    for redirect in part.redirects:
        if redirect.write and redirect.target.text != "/dev/null":
            found.append(f"> {redirect.target.text}")
    return found


def _started_shells(part: CommandPart) -> list[str]:
    """Return the shells that a part starts, itself or through a program that starts others."""
    starts = part.program in RUNNERS and (part.program not in ("find", "fd") or part.hazards)
    words = part.words if starts else (*part.words[:1], *part.words_after_wrappers[:1])
    return [word.text for word in words if program_name(word.text) in SHELLS]


def _check_folder(analysis: CommandAnalysis, resources: Mapping[type, object], folder: str) -> None:
    """Judge file names again, as seen from the folder that the command starts in."""
    if not folder:
        return
    workspace = cast("Workspace", resources[Workspace])
    policy = CommandPolicy.from_resources(resources)
    root = str(workspace.root)
    start = posixpath.join(root, folder)
    loose = (literal_word(start), *analysis.loose)
    findings, _ = judge_paths(analysis.parts, loose, root, "", workspace.names, start=start)
    opened = OpenedFolders()
    if policy.confine is not None:
        opened = OpenedFolders(policy.confine.readable, policy.confine.writable)
    confinement = find_confinement(resources) if findings else None
    if confinement is not None:
        opened = opened.add_confinement(confinement)
    for finding in findings:
        if not opened.cover(finding):
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"the command was not run: {finding.why}")


def make_printable(text: str) -> str:
    """Make characters visible that could hide or move what a person reads."""
    return escape_for_approval(text, keep="\n")
