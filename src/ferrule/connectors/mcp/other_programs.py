"""Where other programs keep their MCP servers, and the entries that are found there."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

_FILES: tuple[tuple[str, str], ...] = (
    ("claude-code", "~/.claude.json"),
    ("claude-desktop", "~/.config/Claude/claude_desktop_config.json"),
    ("claude-desktop", "~/Library/Application Support/Claude/claude_desktop_config.json"),
    ("cursor", "~/.cursor/mcp.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".vscode/mcp.json"),
    ("vscode", "~/.config/Code/User/mcp.json"),
    ("vscode", "~/.config/Code/User/settings.json"),
    ("vscode", "~/Library/Application Support/Code/User/mcp.json"),
    ("windsurf", "~/.codeium/windsurf/mcp_config.json"),
    ("codex", "~/.codex/config.toml"),
)
"""Programs, and the files in which they keep servers: of the person, or of a folder."""

PROGRAMS = tuple(dict.fromkeys(program for program, _ in _FILES))
_MAX_BYTES = 16 * 1024 * 1024
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.S)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.S)


@frozen
class ForeignServers:
    """The servers of one file of another program, by their names."""

    program: str
    file: Path
    entries: Mapping[str, Any]


def find_foreign_servers(
    folder: Path, programs: tuple[str, ...] = ()
) -> tuple[list[ForeignServers], list[str]]:
    """Return the servers of other programs' files, and problems of files that cannot be read.

    Args:
        folder: The folder whose own files are read too.
        programs: Which programs; all if there are none.
    """
    found: list[ForeignServers] = []
    problems: list[str] = []
    for program, name in _files_of(programs):
        file = Path(name).expanduser() if name.startswith("~") else folder / name
        if not file.is_file():
            continue
        try:
            entries = read_foreign_file(file, folder)
        except ConfigError as error:
            problems.append(error.detail)
            continue
        if entries:
            found.append(ForeignServers(program, file, entries))
    return found, problems


def list_file_names(programs: tuple[str, ...] = ()) -> list[str]:
    """Return the files in which these programs keep servers on this system; all if none is named.

    Relative names are files of a folder.
    """
    return [
        name
        for _, name in _files_of(programs)
        if sys.platform == "darwin" or "/Library/" not in name
    ]


def _files_of(programs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return (row for row in _FILES if not programs or row[0] in programs)


def read_foreign_file(file: Path, folder: Path) -> dict[str, Any]:
    """Return the entries of a file of any of the programs.

    Args:
        file: The file.
        folder: The folder whose entries count, where a file has entries for several.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"`{file}` has more than {_MAX_BYTES} bytes")
    content = _parse(data.decode("utf-8-sig", "replace"), file)
    entries: dict[str, Any] = {}
    for group in _groups(content, folder):
        entries |= mapping_or_empty(group)
    return entries


def _parse(text: str, file: Path) -> Mapping[str, Any]:
    try:
        if file.suffix == ".toml":
            return tomllib.loads(text)
        # VS Code's files may hold comments and commas at the end.
        plain = _STRING_OR_COMMENT.sub(
            lambda match: match[0] if match[0].startswith('"') else " ", text
        )
        plain = _TRAILING_COMMA.sub(lambda match: match[1] or "", plain)
        return mapping_or_empty(json.loads(plain))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"`{file}` cannot be read: {error}") from error


def _groups(content: Mapping[str, Any], folder: Path) -> Iterator[object]:
    """Yield every mapping of servers that a file has, under any of the names in use."""
    yield content.get("mcpServers")
    yield content.get("servers")
    yield content.get("mcp_servers")
    yield mapping_or_empty(content.get("mcp")).get("servers")
    projects = mapping_or_empty(content.get("projects"))
    project = cast("Mapping[str, Any]", projects.get(str(folder), {}))
    yield mapping_or_empty(project).get("mcpServers")
