"""`ferrule doctor --attack`: try to break out of this machine's own sandbox, and say what held.

Every attempt of the table (`sandbox.attacks`) is made in a throw-away folder, with every sandbox
backend that this machine has. What came through is no longer claimed on this machine; a backend
that nobody could try before claims what held.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.sandbox.attacks import ATTEMPTS, PYTHON, make_outside, make_workspace, try_attempt
from ferrule.sandbox.backends.probes import probe, use_attack_results
from ferrule.sandbox.backends.selection import (
    STARTABLE_BACKENDS,
    SandboxBackend,
    available_backends,
)
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.storage import paths
from ferrule.storage.attack_results import describe_machine, write_attack_results

CAME_THROUGH = "came through"
HELD = "held"
SKIPPED = "not tried"


@frozen
class AttackRow:
    """One attempt: on which protection of which backend, and what came of it."""

    backend: str
    protection: str
    attempt: str
    outcome: str
    detail: str = ""
    claimed: bool = True


def attack_this_machine(progress: Callable[[str], None]) -> dict[str, Any]:
    """Attack every backend of this machine and keep what that shows. Return the report."""
    began = time.monotonic()
    use_attack_results({})
    place = paths.cache()
    paths.make_private_folder(place)
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="attack-", dir=place)))
    rows: list[AttackRow] = []
    try:
        policy = SandboxPolicy(folder / "work", require=frozenset())
        backends = [one for one in available_backends(policy, probe()) if one.name != "none"]
        for backend in backends:
            if backend.name in STARTABLE_BACKENDS:
                rows += asyncio.run(_attack_backend(backend, folder, progress))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = {one.name: _summarize(one.name, rows) for one in backends}
    tried = {name: result for name, result in results.items() if result["rows"]}
    write_attack_results(tried)
    return {
        "machine": describe_machine(),
        "seconds": round(time.monotonic() - began, 1),
        "backends": results,
        "came_through": [
            {"backend": row.backend, "protection": row.protection, "attempt": row.attempt}
            | {"detail": row.detail, "claimed": row.claimed}
            for row in rows
            if row.outcome == CAME_THROUGH
        ],
    }


async def _attack_backend(
    backend: SandboxBackend, folder: Path, progress: Callable[[str], None]
) -> list[AttackRow]:
    rows: list[AttackRow] = []
    count = sum(map(len, ATTEMPTS.values()))
    has_python = os.access(PYTHON, os.X_OK)
    for protection, attempts in ATTEMPTS.items():
        claimed = protection not in backend.protections.find_missing(frozenset({protection}))
        for attempt in attempts:
            progress(f"{backend.name}: attack {len(rows) + 1} of {count} ({protection})")
            if PYTHON in attempt and not has_python:
                rows.append(
                    AttackRow(backend.name, str(protection), attempt, SKIPPED, f"no {PYTHON}")
                )
                continue
            outcome, detail = await _try_one(backend, attempt, folder)
            rows.append(AttackRow(backend.name, str(protection), attempt, outcome, detail, claimed))
    return rows


async def _try_one(backend: SandboxBackend, attempt: str, folder: Path) -> tuple[str, str]:
    """Make one attempt in a workspace of its own."""
    root = folder / "work"
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(folder / "outside", ignore_errors=True)
    with make_outside(make_workspace(root)) as outside:
        sandbox = Sandbox(SandboxPolicy(root, require=frozenset()), backend=backend)
        try:
            found = await try_attempt(sandbox, attempt, outside)
        except FerruleError as error:
            return SKIPPED, error.detail
        finally:
            await sandbox.close()
    return (CAME_THROUGH, found) if found else (HELD, "")


def _summarize(name: str, rows: list[AttackRow]) -> dict[str, Any]:
    """Return what the rows show of a backend. A protection that was not tried is not shown."""
    own = [row for row in rows if row.backend == name]
    broken = {row.protection: row.attempt for row in own if row.outcome == CAME_THROUGH}
    tried = {row.protection for row in own if row.outcome == HELD}
    untried = {row.protection for row in own if row.outcome == SKIPPED}
    return {
        "rows": len(own),
        "held_rows": sum(row.outcome == HELD for row in own),
        "not_tried": sum(row.outcome == SKIPPED for row in own),
        "held": sorted(tried - set(broken) - untried),
        "broken": broken,
    }
