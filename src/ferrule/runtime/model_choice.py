"""Choose a model where none is named: by a key, from a running Ollama, or the embedded one."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.models.key_check import KeyCheck, ServedModel, check_key
from ferrule.models.registry import PROVIDERS, Provider, find_address, import_object
from ferrule.storage.settings.merge import Origin
from ferrule.storage.settings.settings import ProviderSettings, Settings

from .chosen_providers import choose_providers, require_provider
from .model_clients import create_client

SECONDS = 2.0
"""How long the search may take, for each server that is asked."""

_NOT_FOR_CHAT = compile_lazily(
    r"embed|whisper|tts|rerank|moderation|dall-e|image|audio|guard|transcri|ocr", re.I
)


@frozen
class ModelCandidate:
    """A model that can be used from here.

    Attributes:
        model: Its full name.
        reason: Why it can be used, as the end of a sentence.
        caution: Of the model that is there when nothing else is: what people should know of it.
    """

    model: str
    reason: str
    caution: str = ""


@frozen
class UnusableProvider:
    """A provider whose key is set and that gives no model all the same.

    Attributes:
        name: Its name.
        problem: What is wrong, as a clause.
        hint: One next step.
    """

    name: str
    problem: str
    hint: str


@frozen
class Candidates:
    """What can be used from here, and what was meant to be and cannot.

    Attributes:
        found: The models, best first.
        unusable: The providers that are set up and give none.
    """

    found: Sequence[ModelCandidate]
    unusable: Sequence[UnusableProvider] = ()


def choose_model_now(settings: Settings) -> ModelCandidate:
    """Do `choose_model` from code that is not async, whether or not an event loop runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, choose_model(settings)).result()


def use_model(settings: Settings, chosen: ModelCandidate) -> Settings:
    """Return settings that name this model. The layer stays `default`: nobody named it."""
    return replace(
        settings,
        values={**settings.values, "model": chosen.model},
        origins={**settings.origins, "model": Origin("default", chosen.reason)},
    )


def describe_choice(chosen: ModelCandidate) -> str:
    """Return the one line that says which model is used although none was named."""
    if chosen.caution:
        return (
            f"no model is set, {chosen.reason}: using the embedded `{chosen.model}`. "
            f"{chosen.caution}. `ferrule setup` shows how to get a better one"
        )
    return (
        f"no model is set: using `{chosen.model}`, because {chosen.reason}; "
        "`ferrule setup` keeps or changes that"
    )


async def choose_model(settings: Settings) -> ModelCandidate:
    """Return the best model that can be used without being named.

    Raises:
        ConfigError: There is none.
    """
    keyed = await find_keyed_models(settings)
    found = [*keyed.found, *await _find_ollama_models(settings)]
    if found:
        return found[0]
    problems = [one.problem for one in keyed.unusable] or ["no provider's key is set"]
    reason = f"{', '.join(problems)} and no Ollama is running"
    last = _find_last_resorts(settings, reason)
    if not last:
        raise build_no_model_error(f"no model is set, {reason}")
    return last[0]


def build_no_model_error(detail: str) -> ConfigError:
    """Return the error for a run without any model."""
    return ConfigError(
        detail,
        code="model",
        hint="`ferrule setup` shows how to get one; `pip install 'ferrule[local]'` brings a tiny "
        "one that runs on this machine",
    )


def _find_last_resorts(settings: Settings, reason: str) -> list[ModelCandidate]:
    """Return the models that are there when nothing else is: what an installed plugin brings."""
    return [
        ModelCandidate(row.example, reason, row.last_resort)
        for row in choose_providers(settings).values()
        if row.last_resort
    ]


async def find_candidates(settings: Settings) -> Candidates:
    """Return all models that can be used from here; one for want of others is the last.

    Besides what `choose_model` asks, servers on this machine are asked for their models.
    """
    keyed, ollama, served = await asyncio.gather(
        find_keyed_models(settings), _find_ollama_models(settings), _find_served_models(settings)
    )
    last = _find_last_resorts(settings, "it is built in: tiny, without key, server or network")
    return Candidates([*keyed.found, *ollama, *served, *last], keyed.unusable)


async def find_keyed_models(settings: Settings) -> Candidates:
    """Return a model of each provider whose key is set, in the order of the table."""
    rows = find_keyed_providers(settings)
    answers = await asyncio.gather(
        *(_choose_hosted_model(name, row, settings) for name, row in rows.items())
    )
    return Candidates(
        [one for one in answers if isinstance(one, ModelCandidate)],
        [one for one in answers if isinstance(one, UnusableProvider)],
    )


def find_keyed_providers(settings: Settings) -> dict[str, Provider]:
    """Return the providers whose key is set, in the order of the table."""
    return {
        name: row
        for name, row in choose_providers(settings).items()
        if row.default_model and os.environ.get(key_variable(row, settings.provider(name)))
    }


def key_variable(row: Provider, configured: ProviderSettings) -> str:
    """Return the name of the variable that contains a provider's key, or ""."""
    return configured.api_key_env or row.key_variable


def is_elsewhere(row: Provider, configured: ProviderSettings) -> bool:
    """Whether settings or environment name another address than the provider's own."""
    variable = row.address_variable
    return bool(configured.base_url or (variable and os.environ.get(variable)))


async def _choose_hosted_model(
    name: str, row: Provider, settings: Settings
) -> ModelCandidate | UnusableProvider:
    variable = key_variable(row, settings.provider(name))
    if not is_elsewhere(row, settings.provider(name)):
        return ModelCandidate(row.default_model, f"{variable} is set")
    # Another server may not have the provider's own models: it is asked which it has.
    listed = await list_hosted_models(name, row, settings)
    if isinstance(listed, UnusableProvider):
        return listed
    model = pick_chat_model(listed, row.default_model.partition(":")[2])
    address = find_address(row, settings.provider(name).base_url)
    return ModelCandidate(f"{name}:{model}", f"{variable} is set, and {address} has it")


async def list_hosted_models(
    name: str, row: Provider, settings: Settings
) -> Sequence[str] | UnusableProvider:
    """Return the models that a provider lists for its key, if one of them answers messages."""
    variable = key_variable(row, settings.provider(name))
    address = find_address(row, settings.provider(name).base_url)
    by_name = f"check that address, or name a model, as in `{name}:MODEL`"
    try:
        async with asyncio.timeout(SECONDS):
            check = await check_provider(name, settings)
    except TimeoutError:
        problem = f"{variable} is set, but {address} did not answer in {SECONDS:g} seconds"
        return UnusableProvider(name, problem, by_name)
    except FerruleError as error:
        problem = f"{variable} is set, but {error.detail}"
        return UnusableProvider(name, problem, error.hint or by_name)
    if check.accepted is False:
        problem = f"the key in {variable} is refused by {address}: {check.detail.rstrip('.')}"
        return UnusableProvider(name, problem, f"set {variable} to another one")
    if check.accepted is None:
        return UnusableProvider(name, f"{variable} is set, but {check.detail}", by_name)
    if not pick_chat_model(check.models, ""):
        problem = f"{variable} is set, but {address} lists no model for messages"
        return UnusableProvider(name, problem, by_name)
    return check.models


def pick_chat_model(listed: Sequence[str], wanted: str) -> str:
    """Return the wanted model if it is listed, else the first that answers messages, else ""."""
    if wanted in listed:
        return wanted
    return next((name for name in listed if not _NOT_FOR_CHAT.search(name)), "")


async def check_provider(name: str, settings: Settings, model: str = "any") -> KeyCheck:
    """Check the key of a provider.

    Raises:
        ConfigError: The provider cannot be set up, for want of a key or an address.
        ProviderError: It cannot be reached.
    """
    client = create_client(settings, f"{name}:{model}")
    try:
        key_path = require_provider(name, settings).key_path
        if not isinstance(client, ServedModel) or not key_path:
            return KeyCheck(None, "it needs no key")
        return await check_key(client, key_path)
    finally:
        await client.close()


async def _find_ollama_models(settings: Settings) -> list[ModelCandidate]:
    """Return the installed models of a running Ollama that call tools, the best first."""
    find = import_object(PROVIDERS["ollama"].find_tool_models)
    try:
        async with asyncio.timeout(SECONDS):
            names = await find(settings.provider("ollama").base_url)
    except (TimeoutError, FerruleError):
        return []
    reasons = [f"it is the best of {len(names)} that Ollama has and that call tools"]
    if len(names) == 1:
        reasons = ["it is the one that Ollama has and that calls tools"]
    reasons += ["Ollama has it, and it calls tools"] * len(names)
    return [
        ModelCandidate(f"ollama:{name}", reason)
        for name, reason in zip(names, reasons, strict=False)
    ]


async def _find_served_models(settings: Settings) -> list[ModelCandidate]:
    """Return a model of each server on this machine that answers at its usual address."""
    rows = choose_providers(settings)
    found = await asyncio.gather(
        *(
            _find_served_model(name, row, settings)
            for name, row in rows.items()
            if row.is_preset and row.find_models
        )
    )
    return [candidate for candidate in found if candidate is not None]


async def _find_served_model(name: str, row: Provider, settings: Settings) -> ModelCandidate | None:
    address = find_address(row, settings.provider(name).base_url)
    try:
        async with asyncio.timeout(SECONDS):
            listed = await import_object(row.find_models)(address)
    except (TimeoutError, FerruleError):
        return None
    model = pick_chat_model(listed, "")
    if not model:
        return None
    return ModelCandidate(f"{name}:{model}", f"a server at {address} has it")
