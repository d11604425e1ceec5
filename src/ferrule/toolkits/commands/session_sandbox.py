"""The sandbox of a session's commands: made with the first of them, on the loop that runs it,
closed with the session.

What holds them is a note in the journal, said once and again when it changes; so is a refusal. What
a person answered is one too, written by whoever asked for us (`Approver`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.approvals import Approver
from ferrule.sandbox.backends.missing_protection import Consent, Mode, Rung, SandboxGap, settle
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import choose, ladder
from ferrule.sandbox.policy import Policy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import HELD, Context


class Confined:
    """At most one sandbox, and what a person said of its gaps."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._making = asyncio.Lock()
        self._consent: Consent | None = None
        self._noted = ""

    async def sandbox(self, policy: Policy, on_gap: Mode, context: Context) -> Sandbox:
        """The sandbox for this policy. Raises ToolFailed where the machine cannot hold it and
        nobody agreed to less.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            old = self._sandbox, self._loop
            self._sandbox, self._loop, self._making = None, loop, asyncio.Lock()
            await _closed(*old)
        async with self._making:  # commands that start together share one sandbox, and one question
            if self._sandbox is None or self._sandbox.policy != policy:
                rung = await self._rung(policy, on_gap, context)
                old, self._sandbox = (
                    self._sandbox,
                    Sandbox(policy, rung=rung, identity=context.identity),
                )
                self._note(rung.applied.in_words(), context)
                await _closed(old, loop)
            return self._sandbox

    def _note(self, said: str, context: Context) -> None:
        if said != self._noted:
            self._noted = said
            context.note(HELD, said)

    async def _rung(self, policy: Policy, on_gap: Mode, context: Context) -> Rung:
        if on_gap == "off":
            return ladder(policy, probe())[-1]
        try:
            return choose(policy, probe())
        except SandboxGap as gap:
            approver: Any = context.resources.get(Approver)
            if self._consent is None and approver is not None:
                self._consent = Consent(approver, context.identity)
            try:
                return await settle(policy, gap, on_gap, self._consent)
            except SandboxGap as refused:
                said = f"{refused.detail}; {refused.hint}" if refused.hint else refused.detail
                self._note(f"commands are refused: {said}", context)
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED, f"the command was not run: {said}"
                ) from refused

    async def close(self) -> None:
        """End what runs in it. Another one is made when it is needed again."""
        sandbox, self._sandbox = self._sandbox, None
        await _closed(sandbox, self._loop)


async def _closed(sandbox: Sandbox | None, loop: asyncio.AbstractEventLoop | None) -> None:
    if sandbox is None:
        return
    if loop is asyncio.get_running_loop():
        await sandbox.close()
    else:
        # Its loop is gone, and with it what watched its commands.
        await asyncio.to_thread(sandbox.close_now)
