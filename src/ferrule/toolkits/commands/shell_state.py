"""What a shell of a session carries from one command to the next: its folder and its variables.

No shell process is kept. Each command runs in a sandbox of its own and writes, as its last act,
where it stands and what it exports into a file of the session's scratch folder. Any program that
the command ran can write there too, so what is read is data: the folder has to lie in the
workspace, variables that load code are dropped, and the gate judges the next command as the
line that sets the others and runs it.

Nothing is written by a text without a built-in that could change either. Not carried: aliases,
functions, options, variables that are not exported or hold control characters; anything from a
command that replaced its shell (`exec`), set an EXIT trap of its own, timed out or was killed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.program_facts import word_set
from ferrule.permissions.command_analysis.syntax import CommandPart
from ferrule.permissions.command_variables import loads_code
from ferrule.permissions.provenance import find_any_program
from ferrule.sandbox.sandbox import Sandbox

from .output_folder import OutputFolder
from .plan import SHELL_COMMAND, CommandPlan
from .scratch_files import ScratchFile, plan_hidden_file
from .session_commands import CommandHandle, SessionCommands, ShellState

_MAX_BYTES = 256 * 1024
_MAX_VARIABLES = 64
_OF_THE_SHELL = word_set("_ PWD OLDPWD SHLVL PS1 PS2 VIRTUAL_ENV_PROMPT CONDA_PROMPT_MODIFIER")
"""Variables that bash sets itself, or that only decorate its prompt."""
_CHANGES_STATE = word_set(
    "cd pushd popd export declare typeset readonly unset source . eval builtin command set"
)
"""Built-ins after which a shell may stand elsewhere or export something else."""
_EXPORT = compile_lazily(
    r'^declare -[a-z]*x[a-z]* (\w+)="((?:[^"\\]|\\.)*)"$', re.DOTALL | re.MULTILINE
)
_ESCAPE = compile_lazily(r"\\(.)", re.DOTALL)


@frozen
class StateRecorder:
    """Records in a file the state in which one command leaves its shell."""

    text: str
    file: ScratchFile
    root: str

    @property
    def argv(self) -> tuple[str, ...]:
        """The words to run instead of the planned ones: the same text, and a last act."""
        # Built-ins only: a process for each would cost more than most commands.
        file = shlex.quote(self.file.seen)
        first = f"{{ builtin export -p; builtin printf '\\0'; }} >{file}"
        last = (
            f"{{ builtin export -p; builtin printf '\\0'; builtin pwd -P; }} >>{file} 2>/dev/null"
        )
        return (*SHELL_COMMAND, f"{first}; trap {shlex.quote(last)} EXIT; {self.text}")

    def collect(self, handle: CommandHandle, commands: SessionCommands) -> None:
        """Keep the state that the command has left, if it has left one."""
        data = self.file.take(_MAX_BYTES)
        if data is None or len(data) == _MAX_BYTES or handle.status != "completed":
            return
        before = commands.shell
        started, _, rest = data.partition(b"\0")
        ended, _, folder = rest.partition(b"\0")
        if not folder.endswith(b"\n"):
            return
        chosen = self._choose_folder(folder[:-1], handle, before)
        state = replace(before, folder=chosen)
        variables = _parse(ended)
        variables_before = _parse(started)
        search_path = variables.get("PATH", os.defpath)
        if find_any_program(SHELL_COMMAND[0], search_path) is None:
            # No later command would start, not even one that corrects it.
            handle.hints.append("its PATH is not kept: `bash` is in none of its folders")
            variables["PATH"] = variables_before.get("PATH", os.defpath)
        commands.shell = _add_variables(state, variables, variables_before)

    def _choose_folder(self, found: bytes, handle: CommandHandle, before: ShellState) -> str:
        path = PurePosixPath(os.fsdecode(found))
        if not path.is_relative_to(self.root):
            handle.hints.append(
                f"the next command starts in `{before.folder}`: where this one ended lies outside "
                "the workspace"
            )
            return before.folder
        folder = str(path.relative_to(self.root))
        # A call that names a folder means it for that call; only a `cd` moves the shell.
        if folder == (handle.folder or "."):
            return before.folder
        handle.hints.append(f"the next command starts in `{folder}`")
        return folder


def plan_recording(
    planned: CommandPlan, sandbox: Sandbox, folder: OutputFolder, root: str
) -> StateRecorder | None:
    """Plan how a shell text leaves its state; None if it changes none, or can write nowhere."""
    if not planned.uses_shell or not any(map(_changes_state, planned.analysis.parts)):
        return None
    file = plan_hidden_file(sandbox, folder)
    return None if file is None else StateRecorder(planned.text, file, root)


def _changes_state(part: CommandPart) -> bool:
    return part.program in _CHANGES_STATE or bool(part.assignments and not part.words)


def _parse(data: bytes) -> dict[str, str]:
    """Read what `export -p` prints. Values with control characters are left out."""
    found = _EXPORT.finditer(os.fsdecode(data))
    return {each[1]: _ESCAPE.sub(r"\1", each[2]) for each in found}


def _add_variables(
    state: ShellState, ended: Mapping[str, str], started: Mapping[str, str]
) -> ShellState:
    """Return the state with what a shell changed of the environment that it had been given."""
    changed = {
        name: value
        for name, value in ended.items()
        if started.get(name) != value and name not in _OF_THE_SHELL and _can_be_set(name)
    }
    gone = {name for name in started if name not in ended and name not in _OF_THE_SHELL}
    variables = {**state.variables, **changed}
    kept = {name: value for name, value in variables.items() if name not in gone}
    newest = dict(list(kept.items())[-_MAX_VARIABLES:])
    removed = (gone | {*state.removed}) - changed.keys()
    return replace(state, variables=newest, removed=tuple(sorted(removed)))


def _can_be_set(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not loads_code(name)
