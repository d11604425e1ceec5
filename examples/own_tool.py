"""A tool of your own: the signature is its schema, what it raises is its error. `--model
ollama:llama3.2` asks a real model.
"""

from __future__ import annotations

import argparse
from typing import Literal

from ferrule import Agent, ErrorType, Scripted, ToolFailed, tool
from ferrule.testing import calls, says

STOCK = {("bolt", "Ghent"): 12, ("nut", "Ghent"): 0}


@tool(side_effect="read", timeout=5)
def stock(article: Literal["bolt", "nut"], warehouse: str = "Ghent") -> int:
    """How many pieces of an article a warehouse has.

    Args:
        article: What to count.
        warehouse: The city it stands in.
    """
    if (article, warehouse) not in STOCK:
        known = ", ".join(sorted({city for _, city in STOCK}))
        raise ToolFailed(
            ErrorType.NOT_FOUND, f"no warehouse in {warehouse!r}; there is one in {known}"
        )
    return STOCK[article, warehouse]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as ollama:llama3.2; without it, a script plays the model")
script = [
    calls(("stock", {"article": "bolt", "warehouse": "Gent"})),
    calls(("stock", {"article": "bolt", "warehouse": "Ghent"})),
    says("There are 12 bolts in Ghent."),
]
answer = Agent(parser.parse_args().model or Scripted(script), [stock]).run_sync(
    "How many bolts are in Gent?"
)
for result in answer.results:
    print(result.tool, result.to_text())
print(answer.text)
