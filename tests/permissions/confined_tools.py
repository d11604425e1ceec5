"""Tools whose commands are confined as a test's gate says: `resources={Confinement: ...}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ferrule.tools.definition import ConfinedHandler, Confinement, Tool


def hold(tool: Tool) -> Tool:
    """Return the tool with a claim that a `Confinement` among the resources answers."""
    return replace(tool, confined=ConfinedHandler(tool.handler, _find))


def _find(resources: Mapping[type, object]) -> Confinement | None:
    found = resources.get(Confinement)
    return found if isinstance(found, Confinement) else None
