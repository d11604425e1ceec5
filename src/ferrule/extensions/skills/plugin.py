"""The plugin `skills`: the catalogue of skills for the model, and the tool that reads one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, PartsInternals, Setup
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.catalog import Catalog

from .loading import REPOSITORY_FOLDERS, load_skills


@frozen
class Skills:
    """The skills of the workspace and of the person. Needs a workspace."""

    name: ClassVar[str] = "skills"

    def setup(self, setup: Setup) -> Parts:
        """Read the skills that the rules allow."""
        if setup.workspace is None:
            return Parts()
        root = setup.workspace.root
        repository = setup.internals.repository or ConfigurationSnapshot("", "absent", "")
        loaded = load_skills(
            root, repository, setup.internals.settings_folder, names=setup.internals.names
        )
        permitted = loaded.filter_by(setup.internals.rules)
        for warning in permitted.warnings:
            setup.notice(str(warning))

        def describe(tools: Catalog) -> str:
            has_all = all(tool.full_name in tools for tool in permitted.tools)
            return permitted.catalogue_text if has_all else ""

        places = (root, Path.home()) if setup.internals.settings_folder is not None else (root,)
        watched = [place / name for place in places for name in REPOSITORY_FOLDERS]
        return Parts(
            instructions=describe,
            resources=(permitted,),
            catalog=CatalogChanges(add=lambda _: permitted.tools),
            internals=PartsInternals(watched=watched),
        )
