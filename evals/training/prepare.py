"""Write the examples as tokens of the model.

    python evals/training/prepare.py build/training/rows.npz --epochs 2

A row is a list of tools, and several requests with their calls behind it: `parts` is 0 for the tools,
2 n for the n-th request and 2 n + 1 for its calls. Each epoch holds other variations of the same
requests. A fortieth of the functions is kept apart (epoch -1), to see when a model learns by heart.
Needs numpy beside what the tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from ferrule.models.request_encoding import encode_json_bytes, parse_object
from ferrule_local.client import Local
from ferrule_local.local_exchange import JSON_HEADERS
from training.examples import Row, Variation, keep_apart, read_rows

END = 2
"""`<|im_end|>`, which ends a text."""

MAX_TOOL_TOKENS = 700
MAX_TOKENS = 1000
SEED = 11


class Tokenizer:
    """The tokens of texts as llama.cpp reads them, without control tokens."""

    def __init__(self, client: Local) -> None:
        self._client = client
        self._known: dict[str, list[int]] = {}

    async def encode(self, text: str) -> list[int]:
        if text not in self._known:
            address, transport = await self._client.connect_server()
            asked = {"content": text, "add_special": False, "parse_special": False}
            body = encode_json_bytes(asked)
            answer = await transport.post(f"{address}/tokenize", body, JSON_HEADERS, timeout=60)
            self._known[text] = parse_object(answer.body)["tokens"]
        return self._known[text]

    async def encode_row(self, row: Row) -> tuple[list[int], list[int]]:
        """Return the tokens of a row with their parts; none if it is too long."""
        tools, asks = row.render()
        tokens = await self.encode(tools)
        parts = [0] * len(tokens)
        if len(tokens) > MAX_TOOL_TOKENS:
            return [], []
        for number, (request, calls) in enumerate(asks, 1):
            asked = await self.encode(request)
            called = [*await self.encode(calls), END]
            if len(tokens) + len(asked) + len(called) > MAX_TOKENS:
                break
            tokens = [*tokens, *asked, *called]
            parts += [2 * number] * len(asked) + [2 * number + 1] * len(called)
        return (tokens, parts) if parts[-1] else ([], [])


async def encode_rows(rows: Sequence[tuple[int, Row]]) -> dict[str, Any]:
    """Return the tokens of all rows one after the other, their parts, and where each row ends."""
    client = Local("smollm2")
    tokenizer = Tokenizer(client)
    tokens: list[int] = []
    parts: list[int] = []
    ends: list[int] = []
    epochs: list[int] = []
    for epoch, row in rows:
        own, own_parts = await tokenizer.encode_row(row)
        if own:
            tokens += own
            parts += own_parts
            ends.append(len(tokens))
            epochs.append(epoch)
    await client.close()
    return {
        "tokens": np.array(tokens, np.uint16),
        "parts": np.array(parts, np.uint8),
        "ends": np.array(ends, np.int64),
        "epoch": np.array(epochs, np.int8),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    given = parser.parse_args()
    rng = random.Random(SEED)
    apart, learned = keep_apart(read_rows(), rng, share=1 / 40)
    variation = Variation(learned, rng)
    rows = [(-1, row) for row in apart]
    for epoch in range(given.epochs):
        rows += [(epoch, one) for row in learned for one in variation.vary(row)]
    asked = [ask for row in learned for ask in row.asks]
    silent = sum(not calls for _, calls in asked)
    click.echo(f"{len(asked)} requests to learn, {silent} of them without a call")
    data = await encode_rows(rows)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(given.out, **data)
    click.echo(f"{len(data['ends'])} rows, {len(data['tokens'])} tokens")


if __name__ == "__main__":
    asyncio.run(main())
