"""The vectors that come with Ferrule are those of its tools."""

from __future__ import annotations

from pathlib import Path

import pytest
import tool_vectors

from ferrule_local.installed_models import installed_path
from ferrule_local.vector_cache import SHIPPED, VectorCache


@pytest.mark.model
def test_no_tool_that_ships_is_read_by_the_model_before_its_first_answer(tmp_path: Path) -> None:
    prompts = tool_vectors.list_prompts(tool_vectors.shipped_tools().values())
    cache = VectorCache(tmp_path, installed_path(tool_vectors.MODEL))
    missing = [prompt for prompt in prompts if prompt not in cache.get(prompts)]
    assert len(prompts) > 100
    assert missing == [], "`make lab NAME=tool-vectors` computes them"
    assert not list(tmp_path.iterdir()), "what ships is not written a second time"


@pytest.mark.model
def test_other_texts_are_kept_beside_what_ships(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, installed_path(tool_vectors.MODEL))
    before = SHIPPED.read_bytes()
    cache.put({"a text of nobody": [0.5, 0.25]})
    again = VectorCache(tmp_path, installed_path(tool_vectors.MODEL))
    assert again.get(["a text of nobody"]) == {"a text of nobody": [0.5, 0.25]}
    assert SHIPPED.read_bytes() == before
