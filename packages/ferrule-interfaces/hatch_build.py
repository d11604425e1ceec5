"""Takes from the source tree of `ferrule` what the wheel of `ferrule` leaves out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from pathspec import GitIgnoreSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def find_sources() -> dict[str, str]:
    """Return the files of this distribution, each with its place in a source distribution.

    In a checkout these are the files that the wheel of `ferrule` excludes, so that each file is in
    one wheel; in a source distribution, all that were packed.
    """
    packed = HERE / "src"
    if packed.is_dir():
        return {str(path): str(path.relative_to(HERE)) for path in list_files(packed)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    excluded = project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    is_left_out = GitIgnoreSpec.from_lines(excluded).match_file
    files = {str(path): str(path.relative_to(ROOT)) for path in list_files(ROOT / "src/ferrule")}
    return {path: place for path, place in files.items() if is_left_out(place)}


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, without what Python compiled."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.parent.name != "__pycache__"]


class PinFerrule(MetadataHookInterface):
    """Names the one version of Ferrule that this distribution goes with: its own."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies to the metadata of the project."""
        metadata["dependencies"] = [f"ferrule=={metadata['version']}"]


class AddSources(BuildHookInterface[Any]):
    """Adds the files, except to an editable installation, which has them in the tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files before they are packed."""
        if version == "editable":
            return
        is_wheel = self.target_name == "wheel"
        build_data["force_include"] |= {
            path: place.removeprefix("src/") if is_wheel else place
            for path, place in find_sources().items()
        }
