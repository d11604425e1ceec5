"""Make a settings file with every key as a comment, from the table of settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ferrule.storage.settings.table import SETTINGS

_MAPPINGS = ("actions", "models", "providers", "folders", "policy", "policies")
"""Kinds of settings that are mappings; their default is shown as `{}`."""


def render_settings(*, project: bool, chosen: Mapping[str, object] | None = None) -> str:
    """Return a settings file in which every setting is a comment with its default and purpose.

    A line that begins with `#` without a blank can be uncommented as it is.

    Args:
        project: Leave out what a project cannot set.
        chosen: Settings to set, by key.
    """
    lines = ["# Settings of Ferrule. Uncomment what you want to change."]
    if project:
        lines.append(
            "# A project can only tighten some of them. `ferrule trust` puts it into effect."
        )
    for setting in SETTINGS:
        if project and setting.project == "never":
            continue
        lines += ["", f"# {setting.short} {setting.long}".rstrip()]
        if setting.choices:
            lines.append(f"#   one of: {', '.join(setting.choices)}")
        if chosen is not None and setting.key in chosen:
            lines.append(f"{setting.key}: {_to_yaml(chosen[setting.key])}")
        elif setting.kind in _MAPPINGS:
            lines.append(f"#{setting.key}: {{}}")
        else:
            lines.append(f"#{setting.key}: {_to_yaml(setting.default)}")
    return "\n".join(lines) + "\n"


def _to_yaml(value: object) -> str:
    """Write a value as YAML, which for these values is JSON. Text is quoted, so it stays text."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)  # pyright: ignore[reportUnknownArgumentType]  a tuple of texts
