"""Write single settings into the person's own file, without changing anything else in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .values import read_tree
from .yaml_tree import parse_yaml


def write_setting(file: Path, key: str, value: str) -> None:
    """Set a key at the top level of a settings file; the other lines stay as they are.

    Args:
        file: The file; it is made if it does not exist.
        key: A key without dots.
        value: Its new value.

    Raises:
        ConfigError: The file cannot be read or written, or is no settings file.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `{file}`: {error}") from error
    read_tree(parse_yaml(text.encode(), str(file)))
    # JSON's text is YAML's text in quotes.
    line = f"{key}: {json.dumps(value, ensure_ascii=False)}"
    present = re.compile(rf"^{re.escape(key)}[ \t]*:[^\n]*$", re.M)
    commented = re.compile(rf"^#[ \t]?{re.escape(key)}[ \t]*:[^\n]*$", re.M)
    if present.search(text):
        changed = present.sub(lambda _: line, text, count=1)
    elif commented.search(text):
        changed = commented.sub(lambda _: line, text, count=1)
    else:
        changed = f"{text.rstrip()}\n{line}\n".lstrip("\n")
    written = parse_yaml(changed.encode(), str(file)).pairs or {}
    if key not in written or written[key][1].value != value:
        raise ConfigError(
            f"`{file}` could not be changed without changing more than `{key}`",
            hint=f"write this line into it: `{line}`",
        )
    try:
        paths.write_private(file, changed)
    except OSError as error:
        raise ConfigError(f"cannot write `{file}`: {error.strerror}") from error
