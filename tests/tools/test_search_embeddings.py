"""Finding tools by meaning, around any function that makes vectors of texts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Scripted, Storage, Tool, ToolCalling, define_tool
from ferrule.models.scripted import calls, says
from ferrule.tools.search.embeddings import Embeddings, embedding_text, normalize, static_model
from ferrule.tools.word_stems import tokens

MEANINGS = {
    "umbrella": 0,
    "forecast": 0,
    "rain": 0,
    "cash": 1,
    "invoice": 1,
    "bill": 1,
    "delete": 2,
    "file": 2,
}
"""Words of three matters, as a model might have learned them."""


class Meanings:
    """An encoder whose vectors say how often a text speaks of each matter; it remembers what it was
    asked for.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        said = [[MEANINGS[word] for word in tokens(text) if word in MEANINGS] for text in texts]
        return [[float(row.count(matter)) for matter in range(3)] for row in said]


def made(name: str, description: str, **fields: Any) -> Tool:
    return define_tool(name, description, handler=lambda **_: "done", **fields)


TOOLS = [
    made("get_forecast", "Forecast for a place."),
    made("send_invoice", "Send an invoice."),
    made("delete_file", "Delete a file."),
]


def test_a_tool_without_a_common_word_is_found_by_its_meaning() -> None:
    assert Embeddings(Meanings())("umbrella today", TOOLS)[0] == "get_forecast"
    assert Embeddings(Meanings(), ranking_weight=0)("how much cash", TOOLS) == ["send_invoice"]


def test_a_name_that_is_said_counts_more_than_a_meaning() -> None:
    assert Embeddings(Meanings())("send_invoice umbrella", TOOLS)[:2] == [
        "send_invoice",
        "get_forecast",
    ]


def test_the_vector_of_a_tool_is_made_once() -> None:
    encode = Meanings()
    search = Embeddings(encode)
    search("rain", TOOLS[:2])
    search("rain", TOOLS)
    search("bill", TOOLS)
    assert sorted(encode.asked) == sorted(["rain", "bill", *map(embedding_text, TOOLS)])


def test_only_tools_that_were_given_are_found_also_after_more_were() -> None:
    search = Embeddings(Meanings())
    assert "delete_file" in search("delete a file", TOOLS)
    assert "delete_file" not in search("delete a file", TOOLS[:2])
    assert len(search("send a forecast of the file", TOOLS, {"limit": 1})) == 1


def test_an_encoder_that_loses_a_text_is_an_error() -> None:
    with pytest.raises(ConfigError, match="0 vectors of 4 texts"):
        Embeddings(lambda texts: [])("rain", TOOLS)


def test_a_vector_of_zeros_is_near_to_nothing() -> None:
    assert normalize([0.0, 0.0]) == (0.0, 0.0)
    assert Embeddings(Meanings(), ranking_weight=0)("something else", TOOLS) == []


async def test_a_run_finds_its_deferred_tools_by_meaning() -> None:
    deferred = [made(one.name, one.description, defer_loading=True) for one in TOOLS]
    model = Scripted(
        [
            calls(("tool_search", {"query": "umbrella", "limit": 1})),
            calls(("get_forecast", {})),
            says("dry"),
        ]
    )
    search = {"mode": "client", "strategy": Embeddings(Meanings(), ranking_weight=0)}
    agent = Agent(
        model,
        [made("look", "Look."), *deferred],
        tool_calling=ToolCalling(search=search),
        storage=Storage(journal=":memory:"),
    )
    run = await agent.run("Is it wet?")
    assert run.text == "dry"


def test_nothing_is_loaded_before_a_model_is_wanted() -> None:
    code = (
        "import sys, ferrule.tools.search.embeddings as e; print(any(m in sys.modules for m in "
        "('model2vec', 'numpy')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "False"


def test_a_model_that_is_not_in_a_folder_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        static_model(tmp_path / "minishlab/potion-base-8M")


def test_a_static_model_in_a_folder_is_used(tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec", reason="the extra `embeddings` is not installed")
    import numpy
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", *MEANINGS]
    tokenizer = Tokenizer(
        models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    rows = [
        [0.0, 0.0, 0.0],
        *([float(matter == at) for at in range(3)] for matter in MEANINGS.values()),
    ]
    model = model2vec.StaticModel(numpy.array(rows, dtype="float32"), tokenizer)
    model.save_pretrained(tmp_path / "model")
    search = Embeddings(static_model(tmp_path / "model"), ranking_weight=0)
    assert search("umbrella", TOOLS) == ["get_forecast"]
