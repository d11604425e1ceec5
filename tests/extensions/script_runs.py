"""A way to run one script in a test, and what its built-ins answer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.starlark.script import Script, ScriptFailed, ScriptLimits

PATIENT = 60
"""Seconds that a test waits for an event at the most. None is ever waited for in full."""


class Runs:
    """Runs scripts in a pool of one test. `told` is what they printed and logged, `asked` which
    built-ins they used.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.told: list[tuple[str, str, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}

    async def __call__(
        self, source: str, *arguments: Any, function: str = "run", pure: bool = False, **bounds: Any
    ) -> Any:
        script = Script(source, "tool.md")
        return await self.pool.run(
            script,
            function,
            arguments or [{}],
            serve=self._serve,
            listener=self._hear,
            limits=ScriptLimits(**bounds),
            pure=pure,
        )

    async def fails(self, source: str, *arguments: Any, **options: Any) -> ScriptFailed:
        with pytest.raises(ScriptFailed) as caught:
            await self(source, *arguments, **options)
        return caught.value

    async def _serve(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self.asked.append((name, list(positional), dict(named)))
        answer = self.answers.get(name, ToolFailed(ErrorType.NOT_FOUND, f"nobody answers {name}"))
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return await answer(*positional, **named)
        return answer

    def _hear(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        self.told.append((level, text, dict(fields)))


def descriptors() -> set[str]:
    """What this process has open. Anything an interpreter keeps for itself is in it before and
    after.
    """
    return {f"{name} {_target(name)}" for name in os.listdir("/proc/self/fd")}


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return "gone"
