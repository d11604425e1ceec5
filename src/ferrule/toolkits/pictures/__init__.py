"""Tools that make pictures for a model to look at: of web pages, and of pages of PDFs.

    vision::screenshot   a web page, drawn by a headless Chromium
    vision::pdf_page     a page of a PDF, drawn by `pdftoppm`

Both run a program of this machine, confined in an empty folder (`toolkits.confined_program`); if it
is not installed a call says so, and how to get it. What they return is an `Image`.

Modules: `pdf_page`, `plugin`, `screenshot`.
"""

from __future__ import annotations

from ferrule.tools import toolset
from ferrule.tools.definition import Tool

from .pdf_page import pdf_page
from .screenshot import screenshot

__all__ = ["TOOLS"]

TOOLS: tuple[Tool, ...] = toolset.add_to_groups([screenshot, pdf_page], "vision")
