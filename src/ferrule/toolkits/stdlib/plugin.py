"""The plugins `typed` and `ocr`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool

from . import TOOLS
from .ocr import ocr


@frozen
class TypedTools:
    """Arithmetic, dates, units and text as tools with exact results."""

    name: ClassVar[str] = "typed"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        return Parts(tools=TOOLS)


@frozen
class Ocr:
    """Has pictures read for models that see none (`core.media.MediaOptions`).

    The tool for that is kept from the model, unless another plugin offers it.
    """

    name: ClassVar[str] = "ocr"

    def setup(self, setup: Setup) -> Parts:
        """Return the tool."""
        return Parts(catalog=CatalogChanges(add=_add_reader))


def _add_reader(catalog: Catalog) -> Iterable[Tool]:
    return () if ocr.full_name in catalog else (replace(ocr, loading=Loading.INTERNAL),)
