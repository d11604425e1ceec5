"""The bubblewrap rung: the same session as with namespaces, each command's view made by bubblewrap.

What runs inside first is ours (`sandbox/inside/bubblewrap_supervisor.py`): it bounds and filters
the command and answers its creating calls. It is a copy of our code and the interpreter we run on,
both taken where commands cannot write.

Not protected, besides what `bubblewrap` says: a view is made for each command, and bubblewrap looks
its mount points up by name, so what another command of the session swaps at that moment is covered
in the wrong place or makes the start fail.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
from pathlib import Path

from ferrule.sandbox.inside import bubblewrap_supervisor
from ferrule.sandbox.inside.protocol import Launch
from ferrule.sandbox.inside.session import Session
from ferrule.sandbox.view.layout import Places, Step, Surroundings, layout, own

from .bubblewrap_arguments import bubblewrap_argv, sees
from .namespaces import Confinement
from .probes import interpreter, probe, rights_to_lock

_PROGRAM = "/run/ferrule"
"""Where the view has the code that starts commands."""


class Bubblewrapped(Confinement):
    """What the commands of one session have in common."""

    _steps: tuple[Step, ...] = ()

    def shape_session(self, session: Session, found: Surroundings) -> None:
        session.way = "bubblewrap"
        session.steps, session.own_steps = [], []
        copy_program(self.places())
        *steps, seal = layout(self.policy, found)
        steps.append(("read", _PROGRAM, f"{self.places().held}/program"))
        python = interpreter()
        if not sees(python, steps):
            steps.append(("read", sys.base_prefix, sys.base_prefix))
        session.locked = probe().bwrap_locks
        # What runs first inside writes into its /proc to lock the view, and closes it then.
        ours = ("proc", "seal") if session.locked else ("proc",)
        own_proc = (step for step in own(found) if step[1] != "/proc" or step[0] not in ours)
        self._steps = (*steps, seal, *own_proc)

    def shape_launch(self, launch: Launch) -> None:
        # A mount over a link would lie over what it leads to; the mediator keeps such links as they
        # are.
        masks = [step for step in launch.steps if not os.path.islink(step[1])]  # noqa: PTH114  paths of steps are text
        python = interpreter()
        launch.program_folder = f"{_PROGRAM}/sandbox"
        launch.wrapper = list(
            bubblewrap_argv(
                probe().bwrap,
                [*self._steps, *masks],
                self.places(),
                directory="/",
                program=python,
                argv=(python,),
                rights=rights_to_lock() if probe().bwrap_locks else (),
            )
        )


def copy_program(places: Places) -> None:
    """Copy and compile what starts commands, before any command of the session runs: it may lie in
    the workspace.
    """
    target = Path(places.held, "program")
    if target.exists():
        return
    inside = Path(bubblewrap_supervisor.__file__).parent
    shutil.copytree(inside, target / "sandbox/inside", ignore=shutil.ignore_patterns("__pycache__"))
    names = "permissions/protected_names.py"
    (target / names).parent.mkdir()
    shutil.copy(inside.parents[1] / names, target / names)
    never_again = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, invalidation_mode=never_again)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
