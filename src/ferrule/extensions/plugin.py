"""The plugin `extensions`: tools, hooks and agents that files define, and Python files with tools.

Files are those of a trusted repository and of the person's settings folder.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ferrule import storage
from ferrule.core.value_class import frozen
from ferrule.engine import registration
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, PartsInternals, Setup
from ferrule.storage import paths
from ferrule.storage.said_notices import say_first_time
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool

if TYPE_CHECKING:
    from .extensions import Extensions

_HOOK_FILES = ("hooks", "hooks.json", "hooks.yaml")
_OWN = ("agents", *_HOOK_FILES)
"""Names in the person's settings folder that make it worth loading extensions."""
_WORDS = (b"tools", b"hooks", b"agents")
"""A project's settings file without these words defines no tools, hooks or agents."""


@frozen
class FileExtensions:
    """Tools, hooks and agents from files.

    Attributes:
        python: Python files and modules to take tools from.
        register: Whether scripts may add tools, hooks and agents to a session.
        claude: Whether the person's hooks for Claude Code are used.
        hosts: Hosts that web hooks may reach.
        domains: Domains that scripts may reach; empty for any host of the open internet.
        passed_on: Variables that hook commands get although they look like secrets.
    """

    name: ClassVar[str] = "extensions"
    python: tuple[str, ...] = ()
    register: bool = False
    claude: bool = False
    hosts: tuple[str, ...] = ()
    domains: tuple[str, ...] | None = ()
    passed_on: tuple[str, ...] = ()

    def list_protected_names(self, workspace: Path) -> tuple[str, ...]:
        """Return patterns for the programs of the workspace that the person's own hooks start.

        A command could otherwise replace one, and the hook would run it with what hooks may read.
        """
        own = paths.config()
        claude = self._find_claude()
        if not (any((own / name).exists() for name in _HOOK_FILES) or _has_hooks(claude)):
            return ()
        from .hooks.loading import find_own_programs

        programs = find_own_programs(own, claude)
        return tuple(f"/{name}" for name in programs if (workspace / name).is_file())

    def setup(self, setup: Setup) -> Parts:
        """Load the files. Raises ConfigError if one is invalid that must not be left out."""
        if not self._is_needed(setup):
            return Parts()
        loaded = self._load(setup)
        for text in filter(say_first_time, loaded.notices_once):
            setup.notice(text)
        for text in loaded.notices:
            setup.notice(text)

        def shadow(tools: Catalog) -> tuple[Tool, ...]:
            for text in loaded.describe_hidden(tools):
                setup.notice(text)
            return loaded.make_tools(tools)

        @asynccontextmanager
        async def live() -> AsyncGenerator[None]:
            yield
            await loaded.close()

        return Parts(
            hooks=loaded.hooks,
            agents=loaded.agents,
            lifetime=live,
            catalog=CatalogChanges(replace=shadow),
            internals=PartsInternals(
                registration=self._limit_registration(), left_out=loaded.left_out
            ),
        )

    def _is_needed(self, setup: Setup) -> bool:
        """Return whether any file may define something. No module is loaded to find out."""
        if setup.internals.repository is not None and _has_words(setup.internals.repository):
            return True
        own = setup.internals.settings_folder
        has_own = own is not None and any((own / name).exists() for name in _OWN)
        return bool(self.python) or has_own or _has_hooks(self._find_claude())

    def _load(self, setup: Setup) -> Extensions:
        from .extensions import ExtensionAccess, load_extensions
        from .tool_files.python_tools import PythonSources

        access = ExtensionAccess(
            tuple(self.domains or ()),
            self.hosts,
            setup.confine,
            self.passed_on,
            self._find_claude(),
        )
        return load_extensions(
            setup.internals.repository or storage.ConfigurationSnapshot("", "absent", ""),
            settings_folder=setup.internals.settings_folder,
            access=access,
            register=self.register,
            python=PythonSources(self.python, setup.internals.origins.get("python", "")),
        )

    def _limit_registration(self) -> registration.RegistrationLimits | None:
        return registration.RegistrationLimits() if self.register else None

    def _find_claude(self) -> Path | None:
        return paths.claude() if self.claude else None


def _has_words(repository: storage.ConfigurationSnapshot) -> bool:
    everything: list[Mapping[str, bytes]] = [repository.files, repository.kept]
    return any(
        name != storage.PROJECT_FILE or any(word in data for word in _WORDS)
        for files in everything
        for name, data in files.items()
    )


def _has_hooks(claude: Path | None) -> bool:
    try:
        return claude is not None and b'"hooks"' in (claude / "settings.json").read_bytes()
    except OSError:
        return False
