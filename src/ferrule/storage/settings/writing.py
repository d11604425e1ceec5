"""Write single settings into the person's own file, without changing anything else in it.

`write_setting` sets one at the top level, `open_for_folder` adds to what commands may reach in one
workspace (`folders`), `set_mode_of_folder` sets its mode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .values import read_tree
from .yaml_tree import Node, parse_yaml, to_plain


def write_setting(file: Path, key: str, value: str | Mapping[str, Any]) -> None:
    """Set a key at the top level of a settings file; the other lines stay as they are.

    Args:
        file: The file; it is made if it does not exist.
        key: A key without dots.
        value: Its new value: text, or a mapping of JSON values, which is written in one line.

    Raises:
        ConfigError: The file cannot be read or written, or is no settings file.
    """
    text = _read(file)
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
    if key not in written or to_plain(written[key][1]) != value:
        raise ConfigError(
            f"`{file}` could not be changed without changing more than `{key}`",
            hint=f"write this line into it: `{line}`",
        )
    _write(file, changed)


def open_for_folder(file: Path, folder: str, key: str, target: str) -> None:
    """Add to what commands may reach in one workspace: `folders: {folder: {key: [target]}}`.

    The map `folders` is written anew, all other lines stay as they are.

    Args:
        file: The file; it is made if it does not exist.
        folder: The workspace, absolute.
        key: `readable`, `writable` or `network`.
        target: A folder or host.

    Raises:
        ConfigError: The file cannot be read or written, is no settings file, or has comments in
            the map that would be lost.
    """

    def add(entry: dict[str, Any]) -> None:
        known = cast("list[str]", entry.get(key) or [])
        entry[key] = list(dict.fromkeys((*known, target)))

    _change_folder(file, folder, add)


def set_mode_of_folder(file: Path, folder: str, mode: str) -> bool:
    """Set the mode of one workspace: `folders: {folder: {mode: mode}}`.

    Returns whether that changed the file.

    Args:
        file: The file; it is made if it does not exist.
        folder: The workspace, absolute.
        mode: The mode; "" removes it.

    Raises:
        ConfigError: As for `open_for_folder`.
    """

    def change(entry: dict[str, Any]) -> None:
        entry.pop("mode", None)
        if mode:
            entry["mode"] = mode

    return _change_folder(file, folder, change)


def _change_folder(file: Path, folder: str, change: Callable[[dict[str, Any]], None]) -> bool:
    text = _read(file)
    tree = parse_yaml(text.encode(), str(file))
    read_tree(tree)
    before: dict[str, Any] = to_plain(tree) or {}
    folders = cast("dict[str, dict[str, Any]]", before.get("folders") or {})
    folders = {name: dict(entry) for name, entry in folders.items()}
    change(folders.setdefault(folder, {}))
    if not folders[folder]:
        del folders[folder]
    if folders == (before.get("folders") or {}):
        return False
    start, end = _find_block(tree, "folders", text)
    lines = text.splitlines()
    wanted = {name: entry for name, entry in folders.items() if name == folder}
    hint = f"write this into it: `folders: {json.dumps(wanted)}`"
    if any("#" in line for line in lines[start:end]):
        raise ConfigError(
            f"`folders` in `{file}` has a comment, or a name with `#`, and was not changed",
            hint=hint,
        )
    changed = "\n".join([*lines[:start], *_format_folders(folders), *lines[end:]]) + "\n"
    after = to_plain(parse_yaml(changed.encode(), str(file)))
    if after != {**before, "folders": folders}:
        raise ConfigError(
            f"`{file}` could not be changed without changing more than `folders`", hint=hint
        )
    _write(file, changed)
    return True


def _find_block(tree: Node, key: str, text: str) -> tuple[int, int]:
    """Return the lines of a key at the top level, as a range; an empty one at the end if none."""
    lines = text.splitlines()
    starts = {name: node.line - 1 for name, (node, _) in (tree.pairs or {}).items()}
    if key not in starts:
        return len(lines), len(lines)
    end = min((line for line in starts.values() if line > starts[key]), default=len(lines))
    while end > starts[key] + 1 and (not lines[end - 1].strip() or lines[end - 1][0] == "#"):
        end -= 1  # what stands before the next key belongs to it
    return starts[key], end


def _format_folders(folders: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "folders:" if folders else "folders: {}"
    for folder, entry in folders.items():
        yield f"  {json.dumps(folder, ensure_ascii=False)}:"
        for key, value in entry.items():
            yield f"    {key}: {json.dumps(value, ensure_ascii=False)}"


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `{file}`: {error}") from error


def _write(file: Path, text: str) -> None:
    try:
        paths.write_private(file, text)
    except OSError as error:
        raise ConfigError(f"cannot write `{file}`: {error.strerror}") from error
