"""What a script prints and logs: lines of progress for the person, and notices in the journal.
Never words for the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.tools.context import SAID, Context

SHOWN = 500
"""Characters of a line that a person is shown."""
KEPT_LINE = 2_000
KEPT_LINES = 200
"""Lines of one call that go into the journal, and characters of one; what is left out is said."""


class Lines:
    """The lines of one call, in their order. Fulfils `starlark.pool.Told` with `hear`."""

    def __init__(self, context: Context, name: str) -> None:
        self._context, self._name = context, name
        self._kept = 0

    def hear(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        """One line. `level` is `print`, `info`, `warn`, `error` or `debug`."""
        more = "".join(f" {key}={value}" for key, value in fields.items())
        mark = "" if level in ("print", "info") else f"{level}: "
        line = f"{self._name}: {mark}{text}{more}"
        self._context.progress(line[:SHOWN])
        self._kept += 1
        if self._kept <= KEPT_LINES:
            cut = f" [{len(line) - KEPT_LINE} more characters]" if len(line) > KEPT_LINE else ""
            self._context.note(SAID, line[:KEPT_LINE] + cut)
        elif self._kept == KEPT_LINES + 1:
            self._context.note(
                SAID, f"{self._name}: [more than {KEPT_LINES} lines; the rest is not kept]"
            )
