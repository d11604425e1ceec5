"""How a model file is loaded, from the person's settings and flags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError
from ferrule.runtime.model_clients import create_client
from ferrule.storage.settings.settings import load_settings
from ferrule_local.client import Local, ServerOptions
from ferrule_local.known_models import MODELS, read_template

WINDOW = 2048


def options_of(name: str, flags: dict[str, object], user_file: Path | None = None) -> ServerOptions:
    client = create_client(load_settings(flags=flags, user_file=user_file), name)
    assert isinstance(client, Local)
    return client._server_options


def test_settings_and_flags_say_how_a_model_file_is_loaded(tmp_path: Path) -> None:
    template = tmp_path / "tools.jinja"
    template.write_text("{{ messages }}")
    flags: dict[str, object] = {
        "plugins.local.n_ctx": WINDOW,
        "plugins.local.threads": 3,
        "plugins.local.gpu_layers": 0,
        "plugins.local.cache_type": "q8_0",
        "plugins.local.chat_template": str(template),
    }
    found = options_of("local:smollm2", flags)
    assert found.adapter is not None, "it is loaded with this model, however that is loaded"
    wanted = ServerOptions(WINDOW, 3, False, "{{ messages }}", 0, "q8_0")
    assert replace(found, adapter=None) == wanted


def test_the_window_of_one_model_goes_before_that_of_all(tmp_path: Path) -> None:
    file = tmp_path / "ferrule.yaml"
    file.write_text('plugins: {local: {n_ctx: 512}}\nmodels: {"local:smollm2": {num_ctx: 1024}}\n')
    assert options_of("local:smollm2", {}, file).n_ctx == 1024
    assert options_of("local:gemma3-270m", {}, file).n_ctx == 512


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"chat template .*none\.jinja cannot be read"):
        options_of("local:smollm2", {"plugins.local.chat_template": str(tmp_path / "none.jinja")})


def test_a_known_model_has_the_template_of_its_row_unless_one_is_given() -> None:
    row = MODELS["qwen2.5-coder-0.5b"]
    assert "```json" in read_template(row)
    assert Local(row.name)._server_options.chat_template == read_template(row)
    assert Local(row.name, chat_template="x")._server_options.chat_template == "x"
    assert Local("smollm2")._server_options.chat_template == ""
