"""Report for `ferrule doctor` on the model in use: address, key, context window, tool mode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.models.key_check import KeyCheck
from ferrule.models.registry import find_provider
from ferrule.models.tool_modes.selection import choose_tool_mode, explain_tool_mode
from ferrule.runtime.model_choice import (
    check_provider,
    choose_model_now,
    describe_choice,
    use_model,
)
from ferrule.runtime.model_clients import create_client

from .findings import Finding

if TYPE_CHECKING:
    from ferrule.models.client import Capabilities
    from ferrule.storage.settings.settings import Settings

SECONDS = 15.0
"""How long a model's server may take to answer all questions."""


def report_model(settings: Settings) -> Iterator[Finding]:
    """Report on the model that a run would use now; its server is asked."""
    level = "ok"
    origin = f"from {settings.origin('model')}"
    if not settings.model:
        chosen = choose_model_now(settings)
        settings = use_model(settings, chosen)
        origin = describe_choice(chosen)
        level = "note" if chosen.caution else "ok"
    yield Finding("model", level, f"{settings.model}: {origin}")
    row = find_provider(settings.model)
    if row is not None and row.is_in_process:
        return  # Nothing to reach; the model's file has a check of its own.
    try:
        answers = asyncio.run(_ask_server(settings))
    except TimeoutError:
        yield Finding("model.address", "bad", f"no answer in {SECONDS:g} seconds")
        return
    except FerruleError as error:
        hint = f"; {error.hint}" if error.hint else ""
        name = "model.key" if error.code in ("api_key", "unauthorized") else "model.address"
        yield Finding(name, "bad", f"{error.detail}{hint}")
        return
    yield from _report_answers(settings, answers)


@frozen
class _Answers:
    """What a model's server said: to the key, and of the model unless the key was refused."""

    check: KeyCheck
    capabilities: Capabilities | None = None
    address: str = ""


async def _ask_server(settings: Settings) -> _Answers:
    provider, _, name = settings.model.partition(":")
    row = find_provider(settings.model)
    async with asyncio.timeout(SECONDS):
        check = KeyCheck(None, "it needs none")
        if row is not None and row.key_path:
            check = await check_provider(provider, settings, name)
        if check.accepted is False:
            return _Answers(check)
        client = create_client(settings, settings.model)
        try:
            address = getattr(client, "base_url", "the library's own")
            return _Answers(check, await client.capabilities(), address)
        finally:
            await client.close()


def _report_answers(settings: Settings, answers: _Answers) -> Iterator[Finding]:
    check = answers.check
    capabilities = answers.capabilities
    provider, _, name = settings.model.partition(":")
    variable = _key_variable(settings, provider)
    if variable:
        level = {True: "ok", False: "bad", None: "note"}[check.accepted]
        yield Finding("model.key", level, f"{variable}: {check.detail}")
    if capabilities is None:
        return
    yield Finding("model.address", "ok", answers.address)
    if check.models and name not in check.models:
        near = ", ".join(check.models[:8])
        yield Finding("model.name", "note", f"`{name}` is not among the models it lists: {near}…")
    window = f"{capabilities.context} tokens (source: {capabilities.source})"
    if not capabilities.context:
        window = "unknown: the server does not say; a conversation that is too long is refused"
    yield Finding("model.window", "ok" if capabilities.context else "note", window)
    yield _report_tool_mode(settings, capabilities)


def _key_variable(settings: Settings, provider: str) -> str:
    row = find_provider(settings.model)
    variable = settings.provider(provider).api_key_env or (row.key_variable if row else "")
    return variable if row is not None and row.needs_key else ""


def _report_tool_mode(settings: Settings, capabilities: Capabilities) -> Finding:
    named = settings.for_model(settings.model).tool_mode
    if named != "auto":
        return Finding("model.tool_mode", "ok", f"{named}: the settings say so")
    mode = choose_tool_mode(capabilities)
    level = "ok" if mode == "native" else "note"
    return Finding("model.tool_mode", level, f"{mode}: {explain_tool_mode(capabilities)}")
