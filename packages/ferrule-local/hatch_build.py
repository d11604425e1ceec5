"""Names the one version of Ferrule that this distribution goes with: its own."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PinFerrule(MetadataHookInterface):
    """Fills in the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies to the metadata of the project."""
        metadata["dependencies"] = [
            f"ferrule=={metadata['version']}",
            "PyYAML>=6.0.3,<7",
            "xllamacpp>=2026.10,<2027",
        ]
