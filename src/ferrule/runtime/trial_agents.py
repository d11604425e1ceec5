"""Agents of trials (`ferrule.evaluation`), assembled as `ferrule run` assembles its own.

The person's settings and rules hold, in the throw-away workspace of the trial. What a fixture's own
configuration says (`.ferrule/`, `.mcp.json`) holds if the person trusts the folder it was copied
from. Nobody is asked: the case's approver answers. Reads are allowed as at a terminal, since there
is nothing in the folder but what the case put there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferrule.engine.agent import Agent
from ferrule.evaluation.trials import OpenAgent, TrialSetup
from ferrule.models.client import ModelClient
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import ConfigurationSnapshot, TrustStore

from .assemble import Notice, assemble
from .model_choice import choose_model_now, describe_choice, use_model
from .model_clients import create_client


class CopyTrust(TrustStore):
    """Trusts the copy of a folder that a person trusts, as long as nothing in it differs."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._source = source

    def read(self, workspace: str | Path) -> ConfigurationSnapshot:
        copied = super().read(workspace)
        source = super().read(self._source)
        if source.state == "trusted" and source.digest == copied.digest:
            return replace(copied, state="trusted")
        return copied


def open_assembled_agents(notice: Notice) -> OpenAgent:
    """Return what opens the agents of trials.

    Args:
        notice: Called once with each sentence that the person should read.
    """
    said: set[str] = set()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            notice(text)

    @asynccontextmanager
    async def open_agent(setup: TrialSetup) -> AsyncGenerator[Agent[Any, Any]]:
        case = setup.case
        options: dict[str, Any] = {
            "workspace": str(setup.workspace),
            "model": setup.target.model_for(case),
            "tool_mode": setup.target.tool_mode,
            "quiet": True,
        }
        if case.tools is not None:
            options["tools__allowed"] = case.tools
        assembly = assemble(
            options,
            notice=say_once,
            approver=setup.approver,
            journal=setup.journal,
            trust=None if case.fixture is None else CopyTrust(case.fixture),
        )
        succeeded = False
        try:
            yield assembly.agent
            succeeded = True
        finally:
            await assembly.close(strict=succeeded)

    return open_agent


def name_default_model(notice: Notice) -> str:
    """Return the model that is asked where nobody names one, and say which it is."""
    settings = load_settings()
    if settings.model:
        return settings.model
    chosen = choose_model_now(settings)
    notice(describe_choice(chosen))
    return use_model(settings, chosen).model


def make_judge(model: str) -> ModelClient:
    """Return the client of a model that judges, with what the settings say of its provider.

    Raises:
        ConfigError: The model is unknown.
    """
    return create_client(load_settings(), model)
