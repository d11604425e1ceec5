"""Events of a tool's or a program's own: `custom.*`."""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.chain import Hooks, Outcome
from ferrule.engine.hooks.events import Custom, check_event
from ferrule.tools.context import Context


async def emit(context: Context, event: str, data: Any = None) -> Outcome:
    """Tell the hooks of this session of an event, `custom.deployed`; in a session without hooks
    nothing happens.

    `outcome.blocked` is the refusal, "" if there is none: what a no means is the emitter's to say.
    `outcome.payload.data` is the data as hooks changed it. Raises ConfigError for a name that does
    not begin with `custom.`.
    """
    if not event.startswith("custom.") or event.endswith("*"):
        raise ConfigError(
            f"the event `{event}` cannot be emitted", hint="a name like `custom.deployed`"
        )
    check_event(event, "what emits it")
    hooks = context.resources.get(Hooks)
    payload = Custom(event, data)
    return await hooks.fire(payload) if isinstance(hooks, Hooks) else Outcome(payload)
