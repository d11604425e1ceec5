"""A settings file with every key as a comment, made from the table of settings."""

from __future__ import annotations

import json
from collections.abc import Mapping


def template(*, project: bool, chosen: Mapping[str, object] | None = None) -> str:
    """Every setting as a comment, with its default and what it is for; those that are `chosen` are
    set.

    A line that begins with `#` and no blank can be uncommented as it stands.
    """
    from ferrule.storage.settings.table import SETTINGS

    lines = ["# Settings of Ferrule. Uncomment what you want to change."]
    if project:
        lines += [
            (
                "# A repository can only tighten some of these; `ferrule trust` lets this file "
                "take effect."
            )
        ]
    for setting in SETTINGS:
        if project and setting.project == "never":
            continue
        lines += ["", f"# {setting.short} {setting.long}".rstrip()]
        if setting.choices:
            possible = [
                choice for choice in setting.choices if not (project and choice in setting.refused)
            ]
            lines.append(f"#   one of: {', '.join(possible)}")
        empty = (
            "{}" if setting.kind in ("actions", "models", "providers", "policy", "policies") else ""
        )
        if chosen is not None and setting.key in chosen:
            lines.append(f"{setting.key}: {_yaml(chosen[setting.key])}")
        else:
            lines.append(f"#{setting.key}: {empty or _yaml(setting.default)}")
    return "\n".join(lines) + "\n"


def _yaml(value: object) -> str:
    """A default in YAML, which for these values is JSON; text is quoted so that no word is taken
    for another type.
    """
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)  # pyright: ignore[reportUnknownArgumentType]  a tuple of texts
