"""What a person approved of a server: its command, and what its tools say of themselves, each by
hash.

    unknown    nobody approved its command                          nothing is started
    moved      its command is not the one that was approved         nothing is started
    command    the command may be started, its tools were not seen  nothing is offered
    changed    tools were approved and are other ones now           those that changed are not offered
    approved   both

A server is asked what it offers only after its command was approved, and what it then says is shown
before a model reads it. When a later listing differs, the new one is kept beside the approved one
(`pend`) until a person looked at the difference (a rug pull is a change like any other). Kept in
`<state>/mcp`, one file for each server of each place, readable by their owner alone; a file that
others can write is an error, not an approval.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from ferrule.connectors.cleaning import difference
from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .definitions import Manifest, from_json
from .spec import McpServer

State = Literal["unknown", "moved", "command", "changed", "approved"]
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Approval:
    """How a server stands. `manifest` is what was approved, `pending` what it says now if that
    differs.
    """

    state: State
    manifest: Manifest | None = None
    pending: Manifest | None = None
    covered: str = ""
    """What was approved of the command, as text; for the difference."""

    @property
    def offered(self) -> Manifest:
        """The approved tools that did not change since, as far as is known."""
        manifest = self.manifest or Manifest()
        if self.pending is None:
            return manifest
        now = {one.hash for one in self.pending.tools}
        return replace(manifest, tools=tuple(one for one in manifest.tools if one.hash in now))


class Approvals:
    """A person's approvals. Nothing is written before the first one. Raises ConfigError for files
    that cannot be used.
    """

    def __init__(self, folder: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now

    def look(self, server: McpServer) -> Approval:
        """How a server, as it is written down now, stands."""
        kept = self._load(server)
        if kept is None:
            return Approval("unknown")
        covered = str(kept.get("covered", ""))
        if kept["command"] != server.digest():
            return Approval("moved", covered=covered)
        try:
            manifest = from_json(kept["manifest"]) if kept.get("manifest") else None
            pending = from_json(kept["pending"]) if kept.get("pending") else None
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(server, "it is damaged", "remove it, and approve again") from error
        if manifest is None:
            return Approval("command", covered=covered)
        state: State = "approved" if pending is None else "changed"
        return Approval(state, manifest, pending, covered)

    def approve(self, server: McpServer, manifest: Manifest | None = None) -> None:
        """Approve the command as it is written down, and with a manifest what the server says of
        its tools.
        """
        kept = {
            "version": _VERSION,
            "name": server.name,
            "place": server.place,
            "command": server.digest(),
            "covered": covered_text(server),
            "manifest": None if manifest is None else manifest.as_json(),
            "pending": None,
            "at": int(self._now() * 1000),
        }
        self._store(server, kept)

    def pend(self, server: McpServer, manifest: Manifest | None) -> None:
        """Remember what an approved server says now, or with None that it says what was
        approved.
        """
        kept = self._load(server)
        wanted = None if manifest is None else manifest.as_json()
        if (
            kept is not None
            and kept["command"] == server.digest()
            and kept.get("pending") != wanted
        ):
            self._store(server, {**kept, "pending": wanted})

    def revoke(self, server: McpServer) -> bool:
        """Approve it no more; whether it was approved."""
        file = self._file(server)
        found = file.exists()
        file.unlink(missing_ok=True)
        return found

    def diff(self, server: McpServer, manifest: Manifest | None = None) -> str:
        """What differs from what was approved, as unified diffs; all there is where nothing was.
        What cannot be seen is spelled out.
        """
        seen = self.look(server)
        before, now = seen.covered, covered_text(server)
        parts = [difference("command", before, now)]
        if manifest is not None:
            parts.append(
                difference("tools", seen.manifest.text() if seen.manifest else "", manifest.text())
            )
        return "\n".join(part for part in parts if part)

    # ---- files

    def _file(self, server: McpServer) -> Path:
        folder = self._folder or paths.state() / "mcp"
        key = hashlib.sha256(os.fsencode(f"{server.place}\0{server.name}")).hexdigest()[:16]
        return folder / f"{server.name}-{key}.json"

    def _load(self, server: McpServer) -> dict[str, Any] | None:
        try:
            descriptor = os.open(self._file(server), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(server, f"{error.strerror}", "look at what is there") from error
        with os.fdopen(descriptor, encoding="utf-8") as file:
            about = os.fstat(descriptor)
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                raise self._unusable(
                    server, "others can write it", "check who changed it, then `chmod 600` it"
                )
            try:
                kept: Any = json.load(file)
                if kept["version"] > _VERSION:
                    raise self._unusable(
                        server, "it was written by a newer version", "use that version"
                    )
                _ = kept["command"]
                return cast("dict[str, Any]", kept)
            except (ValueError, KeyError, TypeError) as error:
                raise self._unusable(
                    server, "it is damaged", "remove it, and approve again"
                ) from error

    def _store(self, server: McpServer, kept: dict[str, Any]) -> None:
        paths.write_private(self._file(server), json.dumps(kept, indent=1, sort_keys=True) + "\n")

    def _unusable(self, server: McpServer, why: str, hint: str) -> ConfigError:
        return ConfigError(
            f"`{self._file(server)}` cannot be used: {why}", code="mcp_approval", hint=hint
        )


def covered_text(server: McpServer) -> str:
    """What is approved of a server's command, one fact a line."""
    return json.dumps(server.covered(), indent=1, sort_keys=True) + "\n"
