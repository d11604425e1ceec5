"""Custom events of tools and programs: `custom.*`."""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.chain import Hooks, Outcome
from ferrule.engine.hooks.events import Custom, check_event
from ferrule.tools.context import Context


async def emit_event(context: Context, event: str, data: Any = None) -> Outcome:
    """Fire an event such as `custom.deployed` for the hooks of this session.

    In a session without hooks nothing happens. What a refusal means is up to the caller.

    Returns:
        The outcome: `blocked` is the refusal, or "" if there is none; `payload.data` is the data as
        hooks changed it.

    Raises:
        ConfigError: The name does not begin with `custom.`.
    """
    if not event.startswith("custom.") or event.endswith("*"):
        raise ConfigError(
            f"the event `{event}` cannot be emitted", hint="use a name like `custom.deployed`"
        )
    check_event(event, "what emits it")
    payload = Custom(event, data)
    hooks = context.resources.get(Hooks)
    if not isinstance(hooks, Hooks):
        return Outcome(payload)
    return await hooks.fire(payload)
