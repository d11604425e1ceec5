"""A person's approvals of MCP servers: of the command, and of each tool definition by its hash.

    unknown    the command was not approved                          nothing is started
    moved      the command is not the one that was approved          nothing is started
    command    the command is approved, its tools were not reviewed  nothing is offered
    changed    tools differ from those that were approved            changed ones are not offered
    approved   command and tools are approved                        all of them are offered

A server is asked what it offers only after its command was approved, and its answer is shown to a
person before a model reads it. When a later listing differs, the new one is kept beside the
approved one (`set_pending`) until a person has reviewed the difference (a rug pull is a change like
any other). Approvals are kept in `<state>/mcp`, one file for each server of each place, readable by
their owner alone; a file that others can write is an error, not an approval.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ferrule.connectors.approval_files import ApprovalFile
from ferrule.connectors.json_values import mapping_or_empty
from ferrule.connectors.text_cleaning import diff_texts
from ferrule.core.calls import parse_json
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.storage import paths

from .approval_text import describe_facts, describe_manifest
from .definitions import Manifest, manifest_from_json
from .spec import McpServer

ApprovalState = Literal["unknown", "moved", "command", "changed", "approved"]


@frozen
class ServerApproval:
    """The approval state of a server.

    `manifest` is what was approved, `pending` what the server says now if that differs.
    """

    state: ApprovalState
    manifest: Manifest | None = None
    pending: Manifest | None = None
    approved_configuration: str = ""
    """The approved command as text, to compare with the current one."""

    @property
    def unchanged(self) -> Manifest:
        """The approved tools that have not changed since, as far as is known."""
        manifest = self.manifest or Manifest()
        if self.pending is None:
            return manifest
        current = {tool.hash for tool in self.pending.tools}
        unchanged = tuple(tool for tool in manifest.tools if tool.hash in current)
        return replace(manifest, tools=unchanged)


class ServerApprovals:
    """A person's stored approvals of MCP servers.

    Nothing is written before the first one. Every method raises ConfigError for a file that cannot
    be used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def get(self, server: McpServer) -> ServerApproval:
        """Return the approval state of a server as it is configured now."""
        file = self._file(server)
        stored = file.load()
        if stored is None:
            return ServerApproval("unknown")
        covered = str(stored.get("covered", ""))
        if stored["digest"] != server.digest():
            return ServerApproval("moved", approved_configuration=covered)
        try:
            manifest = manifest_from_json(stored["offer"]) if stored.get("offer") else None
            pending = manifest_from_json(stored["pending"]) if stored.get("pending") else None
        except (KeyError, TypeError, ValueError) as error:
            raise file.report_damage() from error
        if manifest is None:
            return ServerApproval("command", approved_configuration=covered)
        state: ApprovalState = "approved" if pending is None else "changed"
        return ServerApproval(state, manifest, pending, covered)

    def approve(self, server: McpServer, manifest: Manifest | None = None) -> None:
        """Approve the command as it is configured now and, with a manifest, the server's tools."""
        offer = None if manifest is None else manifest.to_json()
        facts = server.approval_facts()
        self._file(server).approve(server.name, server.digest(), facts, offer)

    def set_pending(self, server: McpServer, manifest: Manifest | None) -> None:
        """Store what an approved server says now, or None if it says what was approved."""
        offer = None if manifest is None else manifest.to_json()
        self._file(server).set_pending(server.digest(), offer)

    def revoke(self, server: McpServer) -> bool:
        """Withdraw an approval. Return whether there was one."""
        return self._file(server).revoke()

    def diff(self, server: McpServer, manifest: Manifest | None = None) -> str:
        """Return what differs from what was approved, as unified diffs of texts for a person.

        What was never approved is shown whole, without marks. Invisible characters are spelled out.
        """
        approval = self.get(server)
        parts: list[str] = []
        facts = describe_facts(server.approval_facts())
        if approval.approved_configuration:
            parts.append(_diff("command", _read_facts(approval.approved_configuration), facts))
        else:
            parts.append(_show(facts))
        if manifest is not None and approval.manifest is not None:
            approved = describe_manifest(approval.manifest)
            parts.append(_diff("tools", approved, describe_manifest(manifest)))
        elif manifest is not None:
            parts.append(_show(describe_manifest(manifest)))
        return "\n".join(part for part in parts if part)

    def _file(self, server: McpServer) -> ApprovalFile:
        folder = self._folder or paths.state() / "mcp"
        key = hashlib.sha256(os.fsencode(f"{server.folder}\0{server.name}")).hexdigest()[:16]
        return ApprovalFile(folder / f"{server.name}-{key}.json", "mcp_approval")


def _read_facts(covered: str) -> list[str]:
    """Return the stored facts of an approval as lines for a person."""
    try:
        facts: Any = parse_json(covered)
    except ValueError:
        return covered.splitlines()
    return describe_facts(mapping_or_empty(facts))


def _show(lines: list[str]) -> str:
    return escape_for_approval("\n".join(lines))


def _diff(name: str, approved: list[str], current: list[str]) -> str:
    return diff_texts(name, "\n".join(approved), "\n".join(current))
