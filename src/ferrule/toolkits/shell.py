"""`run_command`: runs a program in the workspace. The only entrance to child processes for a model's words.

Two ways to say what to run, with the same checks:

* a list of words: run as it stands, no shell, nothing is expanded;
* text: split at blanks with quotes respected, and run without a shell too. Text that would mean
  something else in a shell (pipes, redirects, `;`, `$HOME`, `~`) is refused with the way to say it, unless
  `shell` is asked for and the run's settings allow shells.

What it means is found out by `guard.command`, the same that the gate used for its rules; a difference
between the two readings is a refusal. Reserved and secret names are the gate's matter; only the folder the
command starts in is judged again here, since the gate reads file names from the root.

Not protected: what an allowed program does to files (a sandbox's work), and programs under names
that the tables of `guard.hazards` never heard of.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.guard.command import Analysis, Part, analyse
from ferrule.guard.environment import ChildEnvironment, child_environment, looks_secret
from ferrule.guard.hazards import RUNNERS, SHELLS, base
from ferrule.guard.named_paths import judge_paths
from ferrule.guard.safe_mode import SafeMode
from ferrule.guard.words import UNKNOWN, literal
from ferrule.guard.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import COMMAND, READS, Tool

from .examples import with_examples
from .process import Capture, Ended, find_program, run_process

LONGEST_TIMEOUT = 3600
"""Seconds."""
_LONG = 32 * 1024
_TAIL_ON_TIMEOUT = 4000
_NAMES = 12

_MORE_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "bat": ("--pager", "--generate-config-file", "cache"),
    "batcat": ("--pager", "--generate-config-file", "cache"),
    "htmlq": ("--output",),
}
"""Options of safe mode's own programs that run or write something, beyond those of `guard.hazards`."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """What the run's settings say about commands. A resource of the context; without it, these defaults.

    `allow_env` are variables that children get besides the usual ones. `timeout` in seconds, where the call
    says none. `keep` bytes of output are held from the beginning, and as many from the end.
    """

    shell_allowed: bool = False
    safe_mode: SafeMode = SafeMode(on=False)
    allow_env: tuple[str, ...] = ()
    timeout: int = 300
    keep: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Planned:
    """A command that passed the checks. `literal_globs` are words that a shell would have expanded."""

    argv: tuple[str, ...]
    literal_globs: tuple[str, ...] = ()

    def shown(self) -> str:
        """The exact command line, quoted for a shell, with control characters made visible."""
        return printable(shlex.join(self.argv))


def plan(
    command: str | Sequence[str],
    *,
    shell: bool,
    policy: CommandPolicy,
    workspace: Workspace,
    folder: str = "",
) -> Planned:
    """Decide what exactly would run. No I/O. Raises ToolFailed for what may not or cannot be run.

    `folder` is where it starts, relative to the workspace.
    """
    if not isinstance(command, str) and shell:
        raise RetryCall("`shell: true` takes the command as text; a list of words is run without a shell")
    analysis = analyse(
        command, root=str(workspace.root), home=os.environ.get("HOME", ""), names=workspace.names
    )
    if analysis.over_limit or (analysis.problem and not shell):
        why = analysis.over_limit or analysis.problem
        raise RetryCall(f"`{printable(analysis.text)[:200]}` was not run: {why}; {_HOW}")
    if shell:
        _check_shell(analysis, policy)
        planned = Planned(("bash", "--noprofile", "--norc", "-c", str(command)))
    elif isinstance(command, str):
        planned = _split(command, analysis)
    else:
        planned = Planned(tuple(command))
    if not shell:
        # The words that will run are judged, however they were written: one check for both forms.
        analysis = analyse(planned.argv, root=str(workspace.root), names=workspace.names)
    _check_programs(analysis, policy)
    _check_folder(analysis, workspace, folder)
    return planned


_HOW = (
    "one program is started without a shell: give its words as a list, like "
    '["grep", "-rn", "TODO", "src"], and make one call for each step'
)


def _check_shell(analysis: Analysis, policy: CommandPolicy) -> None:
    if not policy.shell_allowed:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`shell: true` was not run: the settings allow no shell; {_HOW}"
        )
    if analysis.problem:
        raise RetryCall(f"the command was not run: {analysis.problem}; write it more plainly")


def _split(text: str, analysis: Analysis) -> Planned:
    """The words of a text, if a shell would see the same words and nothing else."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RetryCall(f"`{printable(text)[:200]}` was not run: {str(error).lower()}; {_HOW}") from None
    # A part that is the whole text: what `sh -c` or `find -exec` would start are parts of their own.
    part = next((part for part in analysis.parts if part.raw == analysis.text), None)
    if part is None or part.redirects or part.assignments or len(part.words) != len(words):
        raise RetryCall(_needs_shell(text))
    globs: list[str] = []
    for word, read in zip(words, part.words, strict=True):
        if read.known and read.text == word:
            continue
        if read.known or read.splits or UNKNOWN in read.text:
            raise RetryCall(_needs_shell(text))
        globs.append(word)
    return Planned(tuple(words), tuple(globs))


def _needs_shell(text: str) -> str:
    return (
        f"`{printable(text)[:200]}` was not run: it uses a shell's pipes, redirects, lists or expansions, and "
        f"{_HOW}. Where the settings allow it, pass `shell: true`. For these characters as text, quote them in "
        "single quotes"
    )


def _check_programs(analysis: Analysis, policy: CommandPolicy) -> None:
    """Shells and safe mode, for every part: behind pipes and wrappers, in `find -exec` and `sh -c` too."""
    shells = [name for part in analysis.parts for name in _shells(part)]
    if shells and not policy.shell_allowed:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`{shells[0]}` was not run: the settings allow no shell; {_HOW}"
        )
    if not policy.safe_mode.on:
        return
    for part in analysis.parts:
        # The name as it is written: `./ls` is another program than `ls`.
        names = [word.text if word.known else "?" for word in (*part.words[:1], *part.stripped[:1])]
        refused = policy.safe_mode.refuses(names)
        effects = [hazard or "an expansion" for hazard in part.hazards] + _more_effects(part.argv)
        if part.assignments:
            effects.append(part.assignments[0])
        effects += [f"> {r.target.text}" for r in part.redirects if r.write and r.target.text != "/dev/null"]
        if refused or effects:
            why = refused or f"safe mode is on and `{effects[0]}` does more than reading"
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"`{printable(part.raw)[:200]}` was not run: {why}; use another tool, or ask the person",
            )


def _shells(part: Part) -> list[str]:
    """Shells that a part starts, itself or through a program that starts others."""
    starts = part.program in RUNNERS and (part.program not in ("find", "fd") or part.hazards)
    words = part.words if starts else (*part.words[:1], *part.stripped[:1])
    return [word.text for word in words if base(word.text) in SHELLS]


def _more_effects(argv: Sequence[str | None]) -> list[str]:
    program = argv[0] if argv else ""
    options = _MORE_EFFECTS.get(program or "", ())
    found = [word for word in argv[1:] if word and word.partition("=")[0] in options]
    if program == "htmlq":
        found += [word for word in argv[1:] if word and word[:1] == "-" and word[1:2] != "-" and "o" in word]
    return found


def _check_folder(analysis: Analysis, workspace: Workspace, folder: str) -> None:
    """File names again, as seen from the folder that the command starts in."""
    if not folder:
        return
    root = str(workspace.root)
    start = Part("cd", stripped=(literal("cd"), literal(folder)))
    findings, _ = judge_paths((start, *analysis.parts), analysis.loose, root, "", workspace.names)
    if findings:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"the command was not run: {findings[0].why}")


def printable(text: str) -> str:
    """Text without characters that could hide or move what a person reads."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _policy(context: Context) -> CommandPolicy:
    found = context.resources.get(CommandPolicy)
    return found if isinstance(found, CommandPolicy) else CommandPolicy()


async def _preview(values: Mapping[str, Any], context: Any) -> str:
    """The exact command line and where it would run."""
    workspace = context.resource(Workspace)
    folder = workspace.permit(values.get("cwd", "."), write=False)
    policy = _policy(context)
    shell = bool(values.get("shell"))
    planned = plan(values["command"], shell=shell, policy=policy, workspace=workspace, folder=folder)
    line = printable(str(values["command"])) if shell else planned.shown()
    how = "in a shell" if shell else "without a shell"
    given = f"\nstandard input:\n{printable(values['stdin'])}" if values.get("stdin") else ""
    return (
        f"{line}\n(in `{folder or '.'}`, {how}, at most {_seconds(values.get('timeout'), policy)} s){given}"
    )


def _seconds(timeout: int | None, policy: CommandPolicy) -> int:
    seconds = policy.timeout if timeout is None else timeout
    if 1 <= seconds <= LONGEST_TIMEOUT:
        return seconds
    raise RetryCall(f"`timeout` must be from 1 to {LONGEST_TIMEOUT} seconds, found {seconds}")


@tool(side_effect="execute", risk="high", timeout=LONGEST_TIMEOUT + 60, parallel=False, preview=_preview)
async def run_command(
    command: Annotated[
        str | list[str], COMMAND, 'The program and its arguments: ["pytest", "-q"], or as text: pytest -q'
    ],
    context: Context,
    timeout: Annotated[int | None, "Seconds after which it is ended, 1 to 3600 (default 300)."] = None,
    cwd: Annotated[str, READS, "The folder of the workspace to start in."] = ".",
    stdin: Annotated[str, "Text for its standard input."] = "",
    shell: Annotated[bool, "Run the text with a shell, where the settings allow it."] = False,
) -> str:
    """Run a program in the workspace and return its output, followed by its exit status if that is not 0.

    There is no shell: no pipes, redirects, variables or wildcards. It gets no secrets from the environment. All
    that it starts ends with it.
    """
    policy = _policy(context)
    workspace = context.resource(Workspace)
    folder = workspace.permit(cwd, write=False)
    planned = plan(command, shell=shell, policy=policy, workspace=workspace, folder=folder)
    seconds = float(_seconds(timeout, policy))
    if context.deadline is not None:
        seconds = min(seconds, max(0.1, context.deadline - 5))
    # Programs believe PWD: ours would name another folder.
    here = {"PWD": str(workspace.root / folder)} if "PWD" in os.environ else {}
    environment = child_environment(os.environ, add=policy.allow_env, overrides=here)
    program = _program(planned.argv[0], environment.values, workspace, policy)
    output = Capture(policy.keep, policy.keep)
    directory = workspace.descriptor(cwd)
    try:
        ended = await run_process(
            planned.argv,
            program=program,
            directory=directory,
            environment=environment.values,
            output=output,
            stdin=stdin.encode("utf-8", "surrogateescape"),
            timeout=seconds,
        )
    finally:
        os.close(directory)
    return _answer(planned, ended, output, environment, seconds)


def _program(name: str, environment: Mapping[str, str], workspace: Workspace, policy: CommandPolicy) -> str:
    if "/" in name:
        return name
    outside = str(workspace.root) if policy.safe_mode.on else ""
    found = find_program(name, environment.get("PATH", os.defpath), outside=outside)
    if found is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND, f"`{printable(name)}` was not run: there is no such program on the PATH"
        )
    return found


def _answer(
    planned: Planned, ended: Ended, output: Capture, environment: ChildEnvironment, seconds: float
) -> str:
    text = output.text()
    notices = _notices(planned, ended, text, environment)
    if ended.timed_out:
        tail = text[-_TAIL_ON_TIMEOUT:]
        said = f"output until then ({output.size} bytes), its end:\n{tail}" if tail else "there was no output"
        raise ToolFailed(
            ErrorType.TIMEOUT,
            f"`{planned.shown()[:200]}` was ended after {seconds:g} s, and all it had started; what it did "
            f"until then stands. {' '.join([*notices, said])}",
        )
    body = text if text else "(no output)"
    if not notices:
        return body
    if len(text) > _LONG:
        # What is longer than a result may be is cut at its end: the status must not be lost with it.
        return "\n".join([*notices, body])
    return "\n".join([body.removesuffix("\n"), *notices])


def _notices(planned: Planned, ended: Ended, text: str, environment: ChildEnvironment) -> list[str]:
    notices: list[str] = []
    failed = ended.exit_code != 0 and not ended.timed_out
    if ended.exit_code:
        notices.append(f"[exit status {ended.exit_code}]")
    elif ended.signal and not ended.timed_out:
        notices.append(f"[ended by {ended.signal}]")
    elif failed:
        notices.append("[exit status unknown]")
    if ended.left:
        notices.append(f"[ended, as it had left them running: {', '.join(ended.left[:_NAMES])}]")
    if ended.alive:
        notices.append(
            f"[may still be running: {', '.join(ended.alive[:_NAMES])}; check before doing it again]"
        )
    if failed and planned.literal_globs:
        globs = ", ".join(f"`{printable(word)}`" for word in planned.literal_globs[:_NAMES])
        notices.append(f"[{globs} was passed as it is: without a shell nothing expands it]")
    if failed and (names := _withheld(text, environment)):
        listed = ", ".join(names[:_NAMES])
        notices.append(f"[not passed on from the environment: {listed}; a person can allow them by name]")
    return notices


def _withheld(text: str, environment: ChildEnvironment) -> list[str]:
    """Variables that may have been missed: those the output speaks of, else those that look like secrets."""
    return list(environment.missing(text)) or [name for name in environment.withheld if looks_secret(name)]


TOOLS: tuple[Tool, ...] = with_examples(run_command)
