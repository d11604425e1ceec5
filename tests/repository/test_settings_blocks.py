"""Every block of settings on the pages is loaded, and what it names of OpenAI's or Anthropic's
models is sent to a server on this machine, which refuses requests that the provider's own types do
not know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_double import serve_model
from test_documents import PAGES

from ferrule.cli.exit_codes import run as ferrule
from ferrule.storage import load_settings

BLOCKS = [
    pytest.param(body, id=f"{page.shown}:{line}")
    for page in PAGES
    for line, info, body in page.blocks
    if info in (["yaml"], ["yaml", "file=.ferrule/ferrule.yaml"])
]
STUBBED = ("openai:", "openai-responses:", "anthropic:")
SECRETS = {"DB_PASSWORD": "x"}
"""Variables that blocks name where a value is needed to load them."""


def models(text: str) -> list[str]:
    """The models that a block of settings names and the server here can play."""
    tree: Any = yaml.safe_load(text)
    named = [*(tree.get("models") or {}), tree.get("model") or ""]
    return [one for one in named if one.startswith(STUBBED)]


SENT = [
    pytest.param(block.values[0], name, id=f"{block.id}-{name}")
    for block in BLOCKS
    for name in models(str(block.values[0]))
]


def test_there_are_blocks_and_models_to_try() -> None:
    assert len(BLOCKS) >= 12 and len(SENT) >= 2


@pytest.mark.parametrize("text", BLOCKS)
def test_settings_of_a_page_load(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ferrule.yaml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(user_file=file, workspace=tmp_path, environment=SECRETS)
    assert not [one for one in settings.notices if "unknown" in one]


@pytest.fixture
def _nothing_piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


@pytest.mark.usefixtures("_nothing_piped")
@pytest.mark.parametrize(("text", "model"), SENT)
def test_a_model_with_the_settings_of_a_page_is_asked(
    text: str, model: str, tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_folders / "config/ferrule.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text, encoding="utf-8")
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, "secret")
    with serve_model() as (variables, double):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = ferrule(["run", "-m", model, "-C", str(tmp_path), "--json", "How many bolts?"])
    assert double.refusals == []
    assert code in (0, 3), "3: the stub calls a tool that there is not"
    assert double.requests


@pytest.mark.usefixtures("_nothing_piped")
def test_a_setting_that_only_another_route_takes_is_found(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page about context taught this for chat completions once."""
    own = own_folders / "config/ferrule.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(
        'models: {"openai:gpt-5": {extra: {context_management: [{type: compaction}]}}}',
        encoding="utf-8",
    )
    with serve_model() as (variables, double):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        ferrule(["run", "-m", "openai:gpt-5", "-C", str(tmp_path), "--json", "How many bolts?"])
    assert double.refusals
