"""What a person may change in a session from the editor: its mode and its model.

The modes are the gate's. `bypassPermissions` is offered only if the person's own settings (or the
command line that the editor was given) chose it: no repository can, and no editor's menu should.
Models are those that the person's settings name. Both are also sent as configuration options, which
newer editors show in place of modes.
"""

from __future__ import annotations

import re
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.vocabulary import PermissionMode
from ferrule.permissions.rule_evaluation import select_mode
from ferrule.storage.settings.settings import Settings

_MODES: dict[PermissionMode, tuple[str, str]] = {
    "default": ("Ask", "Asks before anything that is not safe."),
    "acceptEdits": (
        "Accept edits",
        "Edits files in the folder without asking; asks about the rest.",
    ),
    "sandboxed": (
        "Sandboxed",
        "Edits files and runs what the sandbox holds; asks about deleting, publishing, network.",
    ),
    "plan": ("Plan", "Only reads; changes and runs nothing."),
    "dontAsk": ("Don't ask", "Denies whatever would need approval."),
    "auto": ("Auto", "Same as Accept edits."),
    "bypassPermissions": (
        "Bypass permissions",
        "Asks only about critical risk; deny rules still apply.",
    ),
}
_MODEL = re.compile(r"models\.([^.:]+:.+)\.[a-z_]+")


def list_modes(settings: Settings, current: str) -> list[str]:
    """Return the modes that a session can switch to."""
    offered: list[str] = ["default", "acceptEdits", "plan", "dontAsk"]
    return [mode for mode in _MODES if mode in (*offered, settings.mode, current)]


def choose_mode(settings: Settings, current: str, mode: str) -> PermissionMode:
    """Return the chosen mode. Raises ConfigError for one that this session does not offer."""
    if mode not in list_modes(settings, current):
        raise ConfigError(
            f"this session has no mode `{mode[:40]}`", hint="choose one of its listed modes"
        )
    return select_mode(mode)


def list_models(settings: Settings, current: str) -> list[str]:
    """Return the models that a session can switch to, its own first."""
    named = [found[1] for key in settings.values if (found := _MODEL.fullmatch(key))]
    return list(dict.fromkeys((current, settings.model, *sorted(named))))


def mode_state(settings: Settings, current: str) -> dict[str, Any]:
    """Return the `modes` of a session."""
    listed = [
        {"id": mode, "name": name, "description": said}
        for mode, (name, said) in _MODES.items()
        if mode in list_modes(settings, current)
    ]
    return {"currentModeId": current, "availableModes": listed}


def config_options(
    settings: Settings, mode: str, model: str, models: list[str]
) -> list[dict[str, Any]]:
    """Return the `configOptions` of a session."""
    modes = [
        {"value": one["id"], "name": one["name"], "description": one["description"]}
        for one in mode_state(settings, mode)["availableModes"]
    ]
    listed = [{"value": name, "name": name} for name in models]
    return [
        _select("mode", "Mode", mode, modes),
        _select("model", "Model", model, listed),
    ]


def _select(name: str, shown: str, current: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": name,
        "name": shown,
        "category": name,
        "type": "select",
        "currentValue": current,
        "options": options,
    }
