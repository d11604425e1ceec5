"""Native tool calls of a real model file through llama.cpp's own template and parser: how calls
stream, several calls in one answer, reasoning apart, and what is read again in a second turn.

    python evals/native_calls.py                          # local:qwen2.5-coder-0.5b, 477 MB to pull
    python evals/native_calls.py --model local:granite    # any model whose template has tools

Greedy. *Reasoning* begins each answer in a block of thought: a template that does so takes the place
of the file's own, so it shows where the parts go, not how well the model thinks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes.selection import open_exchange
from ferrule_local.known_models import find_model, read_template

SYSTEM = "You are a careful assistant. If several things are asked, write one block for each call."
OPTIONS = ModelOptions(temperature=0.0, max_tokens=120, timeout=600.0)
MESSAGES = ("1. Read a.txt 2. Read b.txt. Make both calls now.", "And now read plan.md")
END_OF_TEMPLATE = "<|im_start|>assistant\n{% endif %}"


def _tool(name: str, description: str, parameter: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
    }
    return ToolSpec(name, name, description, json.dumps(schema))


TOOLS = [
    _tool("read_file", "Read the contents of a text file.", "path"),
    _tool("weather", "The weather of a city now.", "city"),
]


class Counted:
    """A sink that counts the pieces of an answer."""

    def __init__(self) -> None:
        self.pieces = {"text": 0, "reasoning": 0, "arguments": 0}

    def add_text(self, piece: str) -> None:
        self.pieces["text"] += 1

    def add_reasoning(self, piece: str) -> None:
        self.pieces["reasoning"] += 1

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        self.pieces["arguments"] += 1

    def notice(self, topic: str, text: str) -> None:
        click.echo(f"  notice  {topic}: {text}")


async def converse(client: Any, messages: Sequence[str]) -> None:
    exchange, mode = await open_exchange(client, "auto", SYSTEM, TOOLS, OPTIONS)
    click.echo(f"tool mode: {mode}")
    history: list[Message] = []
    for text in messages:
        sink = Counted()
        history.append(UserMessage(text))
        answer = await exchange.ask(history, sink=sink)
        read = answer.usage.input - answer.usage.cached
        click.echo(f"> {text}")
        click.echo(f"  calls   {[(call.tool, call.arguments) for call in answer.calls]}")
        click.echo(f"  text    {answer.text!r}")
        click.echo(f"  thought {answer.reasoning[:60]!r}")
        click.echo(f"  pieces  {sink.pieces}")
        click.echo(f"  prompt  {answer.usage.input} tokens, {read} of them read now")
        history.append(AssistantMessage(answer.text, answer.calls))
        history += [ToolMessage(call.id, call.tool, "done") for call in answer.calls]
    await client.close()


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="local:qwen2.5-coder-0.5b")
    given = parser.parse_args()
    await converse(create_model_client(given.model, threads=1), MESSAGES)
    template = read_template(find_model("qwen2.5-coder-0.5b"))
    thinking = template.replace(END_OF_TEMPLATE, "<|im_start|>assistant\n<think>\n{% endif %}")
    click.echo("\nwith a template that begins in thought:")
    client = create_model_client(given.model, threads=1, chat_template=thinking)
    await converse(client, MESSAGES[:1])


if __name__ == "__main__":
    asyncio.run(main())
