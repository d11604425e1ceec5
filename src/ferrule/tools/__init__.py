"""Define tools: their schemas, the catalog of a run, and how calls are retried and timed out.

This package knows nothing about models, files or people.

Packages: `search`.
Modules: `background_launch`, `catalog`, `chunked_output`, `context`, `decorator`, `define`,
`definition`, `docstring`, `forking`, `json_conversion`, `line_matching`, `media_types`, `names`,
`number_ranges`, `outcome_probe`, `pack_options`, `parameters`, `plain_schemas`,
`process_resources`, `pydantic_schemas`, `reliability`, `result_facts`, `result_formatting`,
`safe_patterns`, `schema_notation`, `toolset`, `usual_arguments`, `word_stems`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .outcome_probe import NOT_HAPPENED, UNKNOWN, report_effect
    from .reliability import Reliability, read_policies
    from .toolset import configure, describe, rename

__all__ = [
    "NOT_HAPPENED",
    "UNKNOWN",
    "Reliability",
    "configure",
    "describe",
    "read_policies",
    "rename",
    "report_effect",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".outcome_probe": (
            "NOT_HAPPENED",
            "UNKNOWN",
            "report_effect",
        ),
        ".reliability": (
            "Reliability",
            "read_policies",
        ),
        ".toolset": (
            "configure",
            "describe",
            "rename",
        ),
    },
)
