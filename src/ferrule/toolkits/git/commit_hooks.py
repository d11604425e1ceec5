"""Hooks of a repository for `git_commit`: started in the sandbox of the session, or not at all.

A commit on a workbench knows no hooks. Those of the repository run before and after it, as a
command of the session would run them: `git hook run` (git 2.36), confined. Where no sandbox
confines, commands do not see their folder, or the person switched hooks off (`sandbox.git_hooks`),
the result says which did not run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import PurePath

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.repositories import find_hooks_folder, find_repository, read_text
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.git_hooks import list_hooks
from ferrule.toolkits.commands.session_commands import SessionCommands
from ferrule.toolkits.commands.start import get_sandbox, has_confinement
from ferrule.tools.context import Context

from .run import find_git

_SECONDS = 100.0
_BEFORE = ("pre-commit", "prepare-commit-msg", "commit-msg")
_AFTER = ("post-commit",)


class CommitHooks:
    """The hooks for one commit. `ran` and `left_out` are names, for the result."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._workspace = context.resource(Workspace)
        self._repository = found = find_repository(self._workspace.root).repository
        present = list_hooks(found) if found is not None else frozenset[str]()
        self._wanted = [name for name in (*_BEFORE, *_AFTER) if name in present]
        self._sandbox: Sandbox | None = None
        self.ran: list[str] = []
        self.left_out: list[str] = []

    async def prepare(self) -> None:
        """Find out whether hooks may run."""
        if self._wanted and has_confinement(self._context):
            sandbox = await get_sandbox(self._context, SessionCommands.from_context(self._context))
            if sandbox.policy.git_hooks and self._are_seen(sandbox.policy):
                self._sandbox = sandbox
        if self._sandbox is None:
            self.left_out = self._wanted
            self._wanted = []

    def _are_seen(self, policy: SandboxPolicy) -> bool:
        """Return whether commands see the folder of the hooks, which settings may put anywhere."""
        if self._repository is None:
            return False
        folder = PurePath(find_hooks_folder(self._repository))
        seen = (policy.root, self._repository.common_dir, *policy.readable, *policy.writable)
        return any(folder.is_relative_to(one) for one in seen)

    async def run_before(self, message: str) -> str:
        """Run what comes before a commit. Return the message, which hooks may change.

        Raises:
            ToolFailed: A hook refused the commit.
        """
        sandbox = self._sandbox
        if sandbox is None:
            return message
        await self._run(sandbox, "pre-commit", ())
        place = sandbox.scratch_folder
        if place is None:
            return message
        folder, seen = place
        file = folder / f"commit-message-{secrets.token_hex(8)}"
        file.write_text(message, encoding="utf-8")
        try:
            shown = f"{seen}/{file.name}"
            await self._run(sandbox, "prepare-commit-msg", (shown, "message"))
            await self._run(sandbox, "commit-msg", (shown,))
            return read_text(str(file)) or message
        finally:
            file.unlink(missing_ok=True)

    async def run_after(self) -> None:
        """Run what comes after a commit. Nothing that it says changes the commit."""
        if self._sandbox is not None:
            await self._run(self._sandbox, "post-commit", (), may_fail=True)

    async def _run(
        self, sandbox: Sandbox, name: str, words: Sequence[str], *, may_fail: bool = False
    ) -> None:
        if name not in self._wanted:
            return
        output = Capture(4096, 4096)
        directory = self._workspace.open_descriptor("")
        try:
            ended = await sandbox.run(
                Command(
                    ("git", "hook", "run", name, "--", *words),
                    find_git(self._context),
                    directory,
                    filter_environment(os.environ, overrides={"GIT_EDITOR": ":"}).values,
                    output,
                    timeout=_SECONDS,
                    identity=self._context.identity,
                )
            )
        finally:
            os.close(directory)
        self.ran.append(name)
        if ended.exit_code and not may_fail:
            raise ToolFailed(
                ErrorType.TOOL_ERROR,
                f"nothing was committed: the repository's hook `{name}` refused it (exit status "
                f"{ended.exit_code}): {output.text().strip()[:2000]}",
            )

    def describe(self) -> dict[str, list[str]]:
        """Return what the result of the commit says of hooks."""
        value: dict[str, list[str]] = {}
        if self.ran:
            value["hooks_run"] = self.ran
        if self.left_out:
            value["hooks_not_run"] = self.left_out
        return value
