"""The bubblewrap backend: like namespaces, but bubblewrap builds the view of each command.

The first process inside is ours (`sandbox/inside/bubblewrap_supervisor.py`): it limits and filters
the command and answers its creating calls. It runs from a copy of our code and on our interpreter,
both taken where commands cannot write.

Not protected, besides what `bubblewrap` itself says: a view is built for each command, and
bubblewrap looks its mount points up by name. Whatever another command of the session swaps at that
moment is masked in the wrong place, or makes the start fail.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
from pathlib import Path

from ferrule.permissions.provenance import CommandWritable, Origin, trust_place
from ferrule.sandbox import inside
from ferrule.sandbox.inside.protocol import Launch
from ferrule.sandbox.inside.session import SandboxRecord
from ferrule.sandbox.view.layout import (
    MachineFolders,
    SessionPaths,
    Step,
    command_steps,
    session_steps,
)

from .bubblewrap_arguments import bubblewrap_argv, is_visible
from .namespaces import NamespaceBackend
from .probes import interpreter_path, lock_capabilities, probe

_PROGRAM = "/run/ferrule"
"""Where the view has the code that starts commands."""


class BubblewrapBackend(NamespaceBackend):
    """The bubblewrap backend: what the commands of one session share."""

    _view_steps: tuple[Step, ...] = ()

    def adapt_session(self, session: SandboxRecord, found: MachineFolders) -> None:
        session.backend = "bubblewrap"
        session.steps = []
        session.command_steps = []
        copy_program(self.ensure_session_paths())
        *steps, seal_root = session_steps(self.policy, found)
        steps.append(("read", _PROGRAM, f"{self.ensure_session_paths().held}/program"))
        python = interpreter_path()
        if not is_visible(python, steps):
            steps.append(show_interpreter(self.openings.writable))
        session.locked = probe().bwrap_locks
        # The first process inside writes to its /proc to lock the view, and then makes it
        # read-only itself.
        replaced = ("proc", "seal") if session.locked else ("proc",)
        adapted_steps = [
            step for step in command_steps(found) if step[1] != "/proc" or step[0] not in replaced
        ]
        self._view_steps = (*steps, seal_root, *adapted_steps)

    def adapt_launch(self, launch: Launch) -> None:
        # A mount over a link would lie over what it leads to; the mediator keeps such links as they
        # are.
        places = self.ensure_session_paths()
        self.clear_places(self._view_steps)
        steps = [*self._view_steps, *launch.steps]
        steps = [step for step in steps if step[0] != "cover" or not os.path.islink(step[1])]  # noqa: PTH114  paths of steps are text
        python = interpreter_path()
        program = probe().bwrap
        assert program is not None  # this backend is offered only with it
        program.check()
        launch.program_folder = f"{_PROGRAM}/sandbox"
        launch.wrapper = list(
            bubblewrap_argv(
                program,
                steps,
                places,
                directory="/",
                program=python,
                argv=(python,),
                rights=lock_capabilities() if probe().bwrap_locks else (),
            )
        )


def show_interpreter(writable: CommandWritable) -> Step:
    """Return the step that shows the interpreter that runs Ferrule, wherever it is."""
    path = trust_place(
        sys.base_prefix, Origin.MACHINE, writable, reason="the interpreter that runs Ferrule"
    )
    return ("read", str(path), str(path))


def copy_program(places: SessionPaths) -> None:
    """Copy and compile what starts commands, before any command of the session runs.

    The original may lie in the workspace, where commands could change it.
    """
    target = Path(places.held, "program")
    if target.exists():
        return
    original = Path(inside.__file__).parent
    shutil.copytree(
        original, target / "sandbox/inside", ignore=shutil.ignore_patterns("__pycache__")
    )
    protected_names = "permissions/protected_names.py"
    (target / protected_names).parent.mkdir()
    shutil.copy(original.parents[1] / protected_names, target / protected_names)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, invalidation_mode=unchecked)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
