"""Return work that goes on in the background after its call was answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from ferrule.core.value_class import frozen


@frozen
class Launch:
    """Work to continue as a task of the session; the call is answered at once.

    The answer is `{task_id, status}`, together with `answer_fields`. The outcome of the call is
    what `work` returns or raises: hooks after the call see that, and not the launch, before anyone
    reads it.

    Attributes:
        work: The work to run.
        name: What people and the model see as the task's name.
        ends_with_run: Whether the task ends with the run.
        answer_fields: Further fields of the answer.
    """

    work: Callable[[], Awaitable[Any]]
    name: str
    ends_with_run: bool = False
    answer_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
