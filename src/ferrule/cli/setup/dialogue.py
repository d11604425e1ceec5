"""Ask a person which model to use, check it, and write it into their settings."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrule.cli.confirmation import has_terminal
from ferrule.cli.download_progress import show_progress
from ferrule.cli.line_input import read_line
from ferrule.cli.terminal import Terminal
from ferrule.core.errors import ConfigError, FerruleError, ProviderError
from ferrule.models.registry import FetchModel, Provider, import_object
from ferrule.permissions.redaction import Redactor
from ferrule.runtime.chosen_providers import choose_providers, require_provider
from ferrule.runtime.model_choice import (
    build_no_model_error,
    check_provider,
    find_candidates,
    is_elsewhere,
    pick_chat_model,
)
from ferrule.runtime.model_clients import create_client
from ferrule.runtime.model_discovery import DescribeModels
from ferrule.storage import paths
from ferrule.storage.settings.settings import USER_FILE_NAME, Settings, load_settings
from ferrule.storage.settings.writing import write_setting

if TYPE_CHECKING:
    from ferrule.runtime.model_choice import ModelCandidate

_LEAVE = ("q", "quit", "n", "no")
_SHOWN_NAMES = 12
_SHOWN_KEYS = 4


async def run_setup(model: str = "", *, yes: bool = False) -> str:
    """Have a model chosen and write it down. Return its name, or "" if the person left.

    Args:
        model: The model; asked for if it is "".
        yes: Take the first that is found without asking.
    """
    dialogue = SetupDialogue(load_settings(), Terminal())
    if model:
        return await dialogue.use(model)
    candidates = await dialogue.show_candidates()
    if yes and not candidates:
        raise build_no_model_error("no model that can be used was found")
    if yes:
        return await dialogue.use(candidates[0].model, found=True)
    return await dialogue.ask(candidates)


async def offer_setup(options: dict[str, Any]) -> None:
    """Ask a person who never chose a model to choose one; do nothing where nobody can be asked.

    Whoever leaves the question goes on with the model that is chosen without them.

    Args:
        options: The options of the command.
    """
    at_terminal = has_terminal() and sys.stderr.isatty()
    if options.get("model") or options.get("quiet") or not at_terminal:
        return
    settings = load_settings(workspace=options.get("workspace"))
    if settings.model:
        return
    terminal = Terminal()
    terminal.write_message("Ferrule needs a model, and none is set yet.", style="bold")
    dialogue = SetupDialogue(settings, terminal)
    options["model"] = await dialogue.ask(await dialogue.show_candidates()) or None


@dataclass(slots=True)
class SetupDialogue:
    """The conversation with the person. Everything is written to standard error."""

    settings: Settings
    terminal: Terminal
    doubted: str = ""
    """A model that its provider does not list. Who names it again means it."""
    is_asking: bool = False
    """Whether the person can answer."""

    async def show_candidates(self) -> Sequence[ModelCandidate]:
        """Show the models that were found, numbered, and return them."""
        candidates = await find_candidates(self.settings)
        for unusable in candidates.unusable:
            self._write(f"✗ {unusable.name}: {unusable.problem}", unusable.hint, style="yellow")
        found = candidates.found
        width = max((len(one.model) for one in found), default=0)
        for number, one in enumerate(found, 1):
            self._write(f"{number:3}  {one.model:{width}}  {one.reason}")
        if len(found) <= 1 and not candidates.unusable:
            rows = choose_providers(self.settings).values()
            keys = [row.key_variable for row in rows if row.key_variable and row.default_model]
            self._write(
                f"More with a key in the environment ({', '.join(keys[:_SHOWN_KEYS])} …), or with "
                "a running Ollama; `ferrule models list` shows all."
            )
        return found

    async def ask(self, candidates: Sequence[ModelCandidate]) -> str:
        """Ask until a model was chosen and works. Return it, or "" if the person left."""
        self.is_asking = True
        while True:
            question = "Model (a number or provider:model; Enter for 1, q to leave): "
            try:
                typed = (await read_line(question)).strip()
            except EOFError:
                return ""
            if typed.lower() in _LEAVE:
                return ""
            try:
                return await self._use_typed(typed or "1", candidates)
            except FerruleError as error:
                self._write(f"✗ {error.detail}", error.hint, style="yellow")

    async def _use_typed(self, typed: str, candidates: Sequence[ModelCandidate]) -> str:
        """Use what a person typed: a number of the list, or a model's name.

        Raises:
            ConfigError: It is neither, or `use` raises it.
            ProviderError: `use` raises it.
        """
        if not typed.isdecimal():
            if Redactor().redact_text(typed) != typed:
                raise ConfigError(
                    "that looks like a key; a model is asked for",
                    hint="put it into the environment, as in `export OPENAI_API_KEY=…`, and start "
                    "again: keys are never written down here",
                )
            return await self.use(typed)
        number = int(typed)
        if not 1 <= number <= len(candidates):
            raise ConfigError(f"there is no {number} in the list, which ends at {len(candidates)}")
        return await self.use(candidates[number - 1].model, found=True)

    async def use(self, model: str, *, found: bool = False) -> str:
        """Check a model and write it into the person's settings. Return its name.

        Args:
            model: The model, as `provider:model`.
            found: Whether it was proposed here. Then another one of the provider is taken if the
                provider does not list it.

        Raises:
            ConfigError: There is no such provider, its key is not set, or the settings cannot be
                written.
            ProviderError: The provider refuses the key, or cannot be reached.
        """
        model = await self._check(model, found)
        self._fetch(model)
        file: Path = paths.config() / USER_FILE_NAME
        write_setting(file, "model", model)
        self._write(f"✓ {model} is used from now on ({file})", style="green")
        self._keep_address(model.partition(":")[0], file)
        return model

    def _keep_address(self, provider: str, file: Path) -> None:
        """Write down an address that only the environment names: the next shell may not set it."""
        row = require_provider(provider, self.settings)
        configured = self.settings.provider(provider)
        if configured.base_url or not is_elsewhere(row, configured):
            return
        address = os.environ[row.address_variable]
        if any(key.startswith("providers.") for key in self.settings.values):
            self._write(
                f"! its address is {address}, from {row.address_variable}, which the next shell "
                f"may not set: write `base_url: {address}` below `providers: {provider}:`",
                style="yellow",
            )
            return
        write_setting(file, "providers", {provider: {"base_url": address}})
        self._write(f"✓ its address {address}, from {row.address_variable}, is kept there too")

    async def _check(self, model: str, found: bool) -> str:
        provider, colon, name = model.partition(":")
        if not colon or not name:
            create_client(self.settings, model)  # Raises, with what a name looks like.
        check = await check_provider(provider, self.settings, name)
        row = require_provider(provider, self.settings)
        if not row.key_path:
            return model
        variable = self.settings.provider(provider).api_key_env or row.key_variable
        if check.accepted is False:
            raise ProviderError(
                f"the key in {variable} is refused: {check.detail}",
                code="unauthorized",
                hint=f"set {variable} to another one",
            )
        if check.accepted is None:
            self._write(f"· the key could not be checked: {check.detail}")
            return model
        self._write(f"✓ {f'the key in {variable} is ' if row.needs_key else ''}{check.detail}")
        if not check.models or name in check.models:
            return model
        other = pick_chat_model(check.models, name) if found else ""
        if other:
            return f"{provider}:{other}"
        listed = ", ".join(check.models[:_SHOWN_NAMES])
        more = len(check.models) - _SHOWN_NAMES
        rest = f" and {more} more" if more > 0 else ""
        detail = f"`{name}` is not among the models that `{provider}` lists: {listed}{rest}"
        if not self.is_asking:
            hint = "name one of them with `--model`"
            raise ConfigError(detail, code="model_not_found", hint=hint)
        if self.doubted != model:
            self.doubted = model
            raise ConfigError(detail, code="model_not_found", hint="type it again to use it anyway")
        self._write(f"! {detail}", style="yellow")
        return model

    def _fetch(self, model: str) -> None:
        """Download a model that runs in this process, unless it is here.

        Raises:
            ConfigError: It cannot run or cannot be fetched.
        """
        provider, _, name = model.partition(":")
        row = require_provider(provider, self.settings)
        if not row.fetch_model or name not in _list_missing(row):
            return
        fetch: FetchModel = import_object(row.fetch_model)
        try:
            fetch(name, name="", sha256="", tell=self._write, show_progress=show_progress)
        except FerruleError as error:
            raise ConfigError(error.detail, code=error.code, hint=error.hint) from error

    def _write(self, text: str, hint: str = "", *, style: str = "") -> None:
        """Write a line and its hint; at a terminal they are broken between words."""
        for one in filter(None, (text, hint and f"  {hint}")):
            lines = [one]
            if sys.stderr.isatty():
                width = shutil.get_terminal_size().columns - 1
                lines = textwrap.wrap(
                    one, width, subsequent_indent="  ", replace_whitespace=False,
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
            for line in lines:
                self.terminal.write_message(line, style=style)


def _list_missing(row: Provider) -> list[str]:
    """Return the names of the models that a provider knows and that cannot be used yet."""
    describe: DescribeModels = import_object(row.describe_models)
    return [name for name, ready, _ in describe() if not ready]
