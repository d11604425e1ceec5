"""The container backend: one container for the commands of a session, by Docker or Podman.

The engine makes the view: the image's system folders, read-only, and mounts of the workspace, of
what a person opened, and of what is laid over names. It also takes away network, capabilities and
other processes. The first process inside is ours (`sandbox/inside/container`), with the fork
server of the other backends: commands start there without another container.

What is to be masked can change between two commands. A container's mounts cannot, so that another
one is started where they differ.

Not protected, besides what `selection` says: commands of one session see and can end each other. An
engine looks its mount points up by name, as bubblewrap does: what another command of the session
swaps at that moment is masked in the wrong place, or an empty file is made where one has gone.
Different from the other backends: programs are the image's, not the machine's; no preview; no
terminals; unix sockets come in pairs only, since a folder that another container handed on would
outlive its masks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ferrule.permissions.provenance import trust_search_path
from ferrule.sandbox.inside.protocol import Launch
from ferrule.sandbox.inside.session import SandboxRecord
from ferrule.sandbox.view.layout import (
    HELD_FOLDER,
    MachineFolders,
    Step,
    process_limits,
)

from .bubblewrap import copy_program
from .bubblewrap_arguments import outside_path
from .container_arguments import PROGRAM_FOLDER, container_argv, engine_environment
from .namespaces import NamespaceBackend
from .probes import probe

IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the image has its programs."""


class ContainerBackend(NamespaceBackend):
    """The container backend: what the commands of one session share."""

    _view_steps: tuple[Step, ...] = ()

    def _inspect(self) -> MachineFolders:
        """Return what of the machine is shown: nothing of its system, whose place the image has."""
        found = super()._inspect()
        return replace(found, system=(), system_links={}, closed={}, toolchains=(), processors=None)

    def adapt_session(self, session: SandboxRecord, found: MachineFolders) -> None:
        engine = probe().container
        assert engine is not None  # this backend is offered only with it
        copy_program(self.ensure_session_paths())
        session.backend = "container"
        session.user_namespace = False
        session.locked = False
        session.landlock_rules = ()
        session.groups = []
        self._view_steps = tuple(_select_steps(session.steps))
        session.steps = []
        session.command_steps = []
        limited = frozenset({"memory", "processes"}) if engine.limits else frozenset[str]()
        session.limits = process_limits(self.policy, limited)
        search_path = trust_search_path(os.environ.get("PATH", os.defpath), self._writable)
        session.engine_environment = engine_environment(os.environ, search_path)

    def adapt_launch(self, launch: Launch) -> None:
        engine = probe().container
        assert engine is not None
        engine.program.check()
        places = self.ensure_session_paths()
        self.clear_places(self._view_steps)
        # An engine follows a link before it mounts; the mediator keeps links as they are.
        last = (step for step in launch.steps if step[0] != "drop" and not os.path.islink(step[1]))  # noqa: PTH114  paths of steps are text
        mounts = [
            (path, outside_path(detail, places) or path, action == "write")
            for action, path, detail in (*self._view_steps, *last)
        ]
        mounts.append((PROGRAM_FOLDER, f"{places.held}/program", False))
        launch.wrapper = container_argv(engine, mounts, self.policy.limits, places.base)
        if not engine.same_files:
            launch.inode = None

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        values = {name: value for name, value in given.items() if name not in ("TEMP", "TMP")}
        path = f"{values.get('PATH', '')}:{IMAGE_PATH}".lstrip(":")
        return values | {"HOME": self._home, "TMPDIR": "/tmp", "PATH": path}


def _select_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the steps that an engine carries out as mounts: it makes /dev and /proc itself."""
    return [
        step
        for step in steps
        if step[0] in ("read", "write", "cover") and not step[1].startswith(HELD_FOLDER)
    ]
