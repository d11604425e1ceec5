"""Ten examples of Pydantic AI's documentation, rewritten: they run, and the page counts their lines."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="its types say what is legal")

from dev_mode import run_python
from ferrule.testing import calls, says
from media_samples import PDF, make_png
from provider_double import ROUTES, ProviderDouble

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/from_pydantic_ai"
PAGE = ROOT / "docs/from/libraries.md"


def final(**values: Any) -> Any:
    return calls(("final_answer", values))


BOX = {"width": 10, "height": 20, "depth": 30, "units": "cm"}
CASES: dict[str, tuple[list[Any], str]] = {
    "hello_world": ([says("A book of 1974.")], "A book of 1974."),
    "roulette_wheel": (
        [
            calls(("spin", {"square": 18})),
            final(value=True),
            calls(("spin", {"square": 5})),
            final(value=False),
        ],
        "True\nFalse",
    ),
    "olympics": ([final(city="London", country="UK")], "city='London' country='UK'\nUsage("),
    "box_or_error": (
        [final(value="In which units?"), final(value=BOX)],
        "In which units?\nwidth=10 height=20 depth=30 units='cm'",
    ),
    "colors_or_sizes": (
        [final(value=["red", "blue"]), final(value=[10, 20])],
        "['red', 'blue']\n[10, 20]",
    ),
    "text_output_function": ([final(value="A mathematician.")], "['A', 'mathematician.']"),
    "agent_delegation": (
        [calls(("write_jokes", {"count": 2})), final(value=["one", "two"]), says("two")],
        "two\nUsage(",
    ),
    "message_history": ([says("A joke."), says("It is one.")], "A joke.\nIt is one.\n{"),
    "picture": ([says("Ours.")], "Ours."),
    "document": ([says("Nothing.")], "Nothing."),
}


@contextmanager
def serve(turns: list[Any]) -> Generator[str]:
    """A model server beside the program, which blocks."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    stop = asyncio.Event()
    served: list[ProviderDouble] = []

    async def work() -> None:
        # The types of their library read the list of a message's parts only once.
        routes = {path: replace(route, check=lambda _: None) for path, route in ROUTES.items()}
        async with ProviderDouble(turns, routes) as double:
            served.append(double)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    assert ready.wait(10)
    try:
        yield served[0].url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("name", CASES)
def test_a_rewritten_example_runs(name: str, tmp_path: Path) -> None:
    turns, printed = CASES[name]
    (tmp_path / "logo.png").write_bytes(make_png())
    (tmp_path / "document.pdf").write_bytes(PDF)
    variables: dict[str, str] = {}
    with serve(turns) as url:
        for provider, base in (("OPENAI", f"{url}/v1"), ("ANTHROPIC", url)):
            variables[f"{provider}_API_KEY"] = "no-key"
            variables[f"{provider}_BASE_URL"] = base
        shown = run_python(EXAMPLES / f"{name}.py", tmp_path, variables)
    assert shown.startswith(printed)


def test_the_page_counts_the_lines_of_every_example() -> None:
    rows = re.findall(r"\| `[^`]+` [^|]*\| `(\w+)\.py` \| (\d+) \| (\d+) \|", PAGE.read_text())
    counted = {
        path.stem: sum(bool(line.strip()) for line in path.read_text().splitlines())
        for path in EXAMPLES.glob("*.py")
    }
    assert {name: int(ours) for name, _, ours in rows} == counted
    assert set(counted) == set(CASES)
    theirs, ours = (sum(int(row[place]) for row in rows) for place in (1, 2))
    assert f"{theirs} lines there, {ours} here" in PAGE.read_text()
