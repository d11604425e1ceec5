"""How well the embedded model fills flat schemas: 60 small texts, by grammar and by prompt.

    make lab NAME=extract                     both modes, all texts
    make lab NAME=extract ARGS="--count 10"   the first ten

A field is right if it is the value that the text says; case and a plural `s` do not count. A text
whose output could not be had has no right field.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml

from ferrule import Agent, FerruleError
from ferrule.cli.run.schema_option import read_schema_option
from ferrule.models.client import ModelClient, ModelOptions, OutputModeOption
from ferrule.models.registry import create_model_client

TEXTS = Path(__file__).with_name("extract_texts.yaml")
MODES: tuple[OutputModeOption, ...] = ("grammar", "prompt")


class Text(NamedTuple):
    """One text, the schema that is wanted, and what is right."""

    text: str
    schema: Any
    right: dict[str, Any]


class Outcome(NamedTuple):
    """What came of one text: the right fields, of how many, whether it had an output."""

    right: int
    fields: int
    whole: bool
    seconds: float


def load_texts() -> list[Text]:
    """Return all texts, their schemas in turn, so that the first ones are of every kind."""
    groups = yaml.safe_load(TEXTS.read_text(encoding="utf-8"))
    found: list[Text] = []
    for place in range(max(len(group["texts"]) for group in groups)):
        for group in groups:
            if place < len(group["texts"]):
                text, values = group["texts"][place]
                names = [field.split()[0] for field in group["fields"].split(",")]
                schema = read_schema_option(group["fields"], multi=False)
                found.append(Text(text, schema, dict(zip(names, values, strict=True))))
    return found


def is_right(found: object, wanted: object) -> bool:
    """Return whether a field has the value that the text says."""
    if isinstance(wanted, str):
        return isinstance(found, str) and _plain(found) == _plain(wanted)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    return isinstance(found, int | float) and float(found) == float(str(wanted))


def _plain(text: str) -> str:
    return text.strip().casefold().removesuffix("s")


async def extract(text: Text, mode: OutputModeOption, model: ModelClient) -> Outcome:
    """Ask for one text's values."""
    agent: Agent[None, Any] = Agent(
        model,
        instructions="Extract the values that the text says. Copy names as they are in the text.",
        output_type=text.schema,
        output_mode=mode,
        model_options=ModelOptions(temperature=0, max_tokens=120),
    )
    began = time.perf_counter()
    try:
        run = await agent.run(text.text)
        value = run.output
    except FerruleError:
        value = None
    seconds = time.perf_counter() - began
    if not isinstance(value, dict):
        return Outcome(0, len(text.right), False, seconds)
    right = sum(is_right(value.get(name), wanted) for name, wanted in text.right.items())
    return Outcome(right, len(text.right), True, seconds)


async def run_all(texts: list[Text], model: str) -> dict[str, list[Outcome]]:
    """Ask for all texts in all modes, one after the other."""
    client = create_model_client(model)
    found: dict[str, list[Outcome]] = {}
    try:
        await client.capabilities()
        for mode in MODES:
            found[mode] = [await extract(text, mode, client) for text in texts]
    finally:
        await client.close()
    return found


@click.command()
@click.option("--count", type=int, default=60, help="How many texts.")
@click.option("--model", default="local:smollm2", help="The model.")
def main(count: int, model: str) -> None:
    """Print the table."""
    texts = load_texts()[:count]
    click.echo(f"{model}, {len(texts)} texts\n")
    click.echo("| mode | fields right | texts with all right | texts with an output | s a text |")
    click.echo("|---|--:|--:|--:|--:|")
    for mode, outcomes in asyncio.run(run_all(texts, model)).items():
        right = sum(one.right for one in outcomes)
        fields = sum(one.fields for one in outcomes)
        perfect = sum(one.right == one.fields for one in outcomes)
        whole = sum(one.whole for one in outcomes)
        seconds = sum(one.seconds for one in outcomes) / len(outcomes)
        click.echo(
            f"| {mode} | {right}/{fields} ({100 * right / fields:.1f} %) | {perfect} | {whole} "
            f"| {seconds:.2f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
