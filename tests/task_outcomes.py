"""What a journal says of background tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ferrule.core.events import Event, Noticed
from ferrule.engine.background import TOPIC

_NOTE = re.compile(r"(task_[0-9a-f]{20}) \(`[^`]*`\) (started|done|failed|cancelled)\b")


def list_task_outcomes(events: Iterable[Event]) -> dict[str, str]:
    """Return how the tasks of a journal ended, by id.

    Returns:
        `done`, `failed`, `cancelled`, or `unknown` for tasks without an end. Those may still be
        running if another process is driving the session.
    """
    found: dict[str, str] = {}
    for event in events:
        if not isinstance(event, Noticed) or event.topic != TOPIC:
            continue
        note = _NOTE.match(event.text)
        if note:
            task_id, status = note.groups()
            found[task_id] = "unknown" if status == "started" else status
    return found
