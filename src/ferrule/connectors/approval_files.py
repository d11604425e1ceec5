"""A person's stored approvals of what is connected, one private file for each."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.storage.private_files import PrivateFile


@frozen
class ApprovalFile:
    """The stored approval of one server or peer.

    Its entry has the `digest` of the approved configuration, that configuration as text
    (`covered`), what was approved of its offer (`offer`) and what it offers now if that differs
    (`pending`). Every method but `revoke` raises ConfigError, with `code`, for a file that cannot
    be used. Nothing is written before the first approval.
    """

    path: Path
    code: str

    def load(self) -> dict[str, Any] | None:
        """Return the stored entry; None if there is none."""
        stored = self._file.read()
        if stored is not None and "digest" not in stored:
            raise self.report_damage()
        return stored

    def approve(self, name: str, digest: str, facts: Mapping[str, Any], offer: Any) -> None:
        """Store an approval of a configuration and, if it is given, of what is offered."""
        self._file.write(
            {
                "name": name,
                "digest": digest,
                "covered": format_facts(facts),
                "offer": offer,
                "pending": None,
                "at": int(time.time() * 1000),
            }
        )

    def set_pending(self, digest: str, offer: Any) -> None:
        """Store what an approved one offers now, or None if it is what was approved."""
        stored = self.load()
        if stored is None or stored["digest"] != digest or stored.get("pending") == offer:
            return
        self._file.write({**stored, "pending": offer})

    def revoke(self) -> bool:
        """Withdraw an approval. Return whether there was one."""
        existed = self.path.exists()
        self.path.unlink(missing_ok=True)
        return existed

    def report_damage(self) -> ConfigError:
        """Return the error for an entry that cannot be read."""
        return self._file.report_damage()

    @property
    def _file(self) -> PrivateFile:
        return PrivateFile(self.path, self.code, "remove it and approve again")


def format_facts(facts: Mapping[str, Any]) -> str:
    """Return what is approved of a configuration, one fact a line."""
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
