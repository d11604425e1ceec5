"""What a handler returns whose work goes on after its call was answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Launch:
    """Work that is to go on as a task of the session: the call is answered at once with `{task_id,
    status}`.

    What `work` returns or raises is the outcome of the call: hooks after the call see that, and not
    the launch, before anybody reads it. `name` is what people and the model read of the task,
    `of_run` ends it with the run, `shown` joins the answer.
    """

    work: Callable[[], Awaitable[Any]]
    name: str
    of_run: bool = False
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])
