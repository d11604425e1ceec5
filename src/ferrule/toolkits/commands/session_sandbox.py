"""The sandbox of a session's commands.

It is made with the first command, on the loop that runs it, and closed with the session. What it
enforces is a note in the journal, written once and again when it changes; so is a refusal. A
person's answer is recorded by the `Approver` that asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.approvals import Approver
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import (
    MissingProtections,
    ReducedProtectionApproval,
    SandboxBackend,
    SandboxMode,
    accept_or_raise,
)
from ferrule.sandbox.backends.selection import available_backends, choose_backend
from ferrule.sandbox.network.allowed_hosts import HostRules
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import SANDBOX_TOPIC, Context

from .refused_access import SessionOpenings


class SessionSandbox:
    """At most one sandbox, and what a person said about its missing protection.

    Args:
        hosts: Decides which hosts are reached; by default the policy does.
        on_contact: Called for every connection that a command asked for.
    """

    def __init__(
        self,
        hosts: HostRules | None = None,
        on_contact: Callable[[ConnectionAttempt], None] = lambda contact: None,
    ) -> None:
        self._hosts = hosts
        self._on_contact = on_contact
        self._sandbox: Sandbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._making = asyncio.Lock()
        self._consent: ReducedProtectionApproval | None = None
        self._noted = ""
        self._root: tuple[int, int] | None = None
        """The folder that the sandbox shows as its root: not one that was made there since."""
        self.openings = SessionOpenings()
        """What a person opened besides."""

    async def get(
        self, policy: SandboxPolicy, on_missing_protection: SandboxMode, context: Context
    ) -> Sandbox:
        """Return the sandbox for this policy.

        Raises:
            ToolFailed: The machine cannot enforce it, and nobody agreed to less.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            old = self._sandbox
            old_loop = self._loop
            self._sandbox = None
            self._loop = loop
            self._making = asyncio.Lock()
            await _close(old, old_loop)
        # Commands that start together share one sandbox, and one question.
        async with self._making:
            policy = self.openings.add_to(policy)
            if self._sandbox is not None and _differ_in_openings(self._sandbox.policy, policy):
                if not self._sandbox.is_busy:
                    await self._sandbox.change_policy(policy)
                elif _is_wider(policy, self._sandbox.policy):
                    return self._sandbox  # what was opened takes effect when nothing runs
            root = _identify(policy.root)
            if self._sandbox is None or self._sandbox.policy != policy or root != self._root:
                self._root = root
                backend = await self._choose_backend(policy, on_missing_protection, context)
                old = self._sandbox
                self._sandbox = Sandbox(
                    policy,
                    backend=backend,
                    on_contact=self._on_contact,
                    identity=context.identity,
                    hosts=self._hosts,
                )
                self._note(backend.protections.describe(), context)
                await _close(old, loop)
            return self._sandbox

    @property
    def current(self) -> Sandbox | None:
        """The sandbox, if a command was run."""
        return self._sandbox

    @asynccontextmanager
    async def open_once(self, openings: Sequence[Opening]) -> AsyncGenerator[Sandbox | None]:
        """Open something for the one command that is run meanwhile, all others wait.

        Yields the sandbox to run it in; None without openings: then nobody waits.

        Raises:
            ToolFailed: Another command of the session runs, which must not see it.
        """
        if not openings:
            yield None
            return
        async with self._making:
            sandbox = self._sandbox
            if sandbox is None or sandbox.is_busy:
                raise ToolFailed(
                    ErrorType.LIMIT,
                    "the command was not run again: what was opened for it alone would be open "
                    "for another command that runs; try again when that has ended",
                )
            policy = sandbox.policy
            wider = policy
            for opening in openings:
                wider = opening.add_to(wider)
            try:
                await sandbox.change_policy(wider)
                yield sandbox
            finally:
                await self._narrow(sandbox, policy)

    async def _narrow(self, sandbox: Sandbox, policy: SandboxPolicy) -> None:
        """Take back what was open for one command; end the sandbox if that cannot be."""
        if not sandbox.is_busy:
            await sandbox.change_policy(policy)
            return
        self._sandbox = None
        await sandbox.close()

    def _note(self, text: str, context: Context) -> None:
        if text != self._noted:
            self._noted = text
            context.note(SANDBOX_TOPIC, text)

    async def _choose_backend(
        self, policy: SandboxPolicy, on_gap: SandboxMode, context: Context
    ) -> SandboxBackend:
        if on_gap == "off":
            return available_backends(policy, probe())[-1]
        try:
            return choose_backend(policy, probe())
        except MissingProtections as gap:
            approver: Any = context.resources.get(Approver)
            if self._consent is None and approver is not None:
                self._consent = ReducedProtectionApproval(approver, context.identity)
            try:
                return await accept_or_raise(policy, gap, on_gap, self._consent)
            except MissingProtections as refused:
                reason = f"{refused.detail}; {refused.hint}" if refused.hint else refused.detail
                self._note(f"commands are refused: {reason}", context)
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED,
                    f"the command was not run: {reason}",
                    refused_by="sandbox",
                ) from refused

    async def close(self) -> None:
        """End what runs in it. Another sandbox is made when one is needed again."""
        sandbox = self._sandbox
        self._sandbox = None
        await _close(sandbox, self._loop)


def _differ_in_openings(old: SandboxPolicy | None, new: SandboxPolicy) -> bool:
    """Whether two policies differ, and in nothing but what a person opened."""
    if old is None or old == new:
        return False
    opened = {"readable": new.readable, "writable": new.writable, "network": new.network}
    return replace(old, **opened) == new


def _is_wider(policy: SandboxPolicy, than: SandboxPolicy | None) -> bool:
    """Whether a policy opens all that another one does."""
    return than is not None and all(
        set(getattr(than, key)) <= set(getattr(policy, key))
        for key in ("readable", "writable", "network")
    )


async def _close(sandbox: Sandbox | None, loop: asyncio.AbstractEventLoop | None) -> None:
    if sandbox is None:
        return
    if loop is asyncio.get_running_loop():
        await sandbox.close()
    else:
        # Its loop has stopped, and with it the tasks that watched its commands.
        await asyncio.to_thread(sandbox.close_now)


def _identify(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
