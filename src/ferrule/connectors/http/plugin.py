"""The plugin `http`: tools that are HTTP requests, from manifests and OpenAPI documents."""

from __future__ import annotations

from typing import Any, ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup

from .loading import HttpToolSettings, load_tools


@frozen
class HttpTools:
    """The HTTP tools of the settings, of the person's folder and of a trusted repository.

    A program that names its files itself uses `http_tools` and `openapi_tools`.

    Attributes:
        manifests: The person's files.
        openapi: OpenAPI documents, as `tools.openapi` has them.
        hosts: Hosts that a repository's files may open.
        secrets: Secrets that a repository's files may use.
    """

    name: ClassVar[str] = "http"
    manifests: tuple[str, ...] = ()
    openapi: Any = None
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def setup(self, setup: Setup) -> Parts:
        """Read the files. What cannot be used is left out, with a notice."""
        wanted = HttpToolSettings(
            tuple(self.manifests),
            self.openapi or None,
            tuple(self.hosts),
            tuple(self.secrets),
            setup.internals.settings_folder,
        )
        loaded = load_tools(wanted, setup.internals.repository)
        for text in loaded.notices:
            setup.notice(text)
        return Parts(catalog=CatalogChanges(add=lambda _: loaded.tools))
