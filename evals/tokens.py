"""Print what costs tokens: system text and tools of each profile, outputs before and after.

Tokens are estimated as the context window counts them (`BYTES_PER_TOKEN`).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import click

from ferrule.engine.context.compaction_plan import BYTES_PER_TOKEN
from ferrule.runtime.assemble import assemble
from ferrule.toolkits.commands.output_folding import fold_output
from ferrule.toolkits.commands.output_reduction import reduce_output

OUTPUTS = Path(__file__).parent.parent / "tests/toolkits/commands/outputs"
PROFILES = [
    *(
        ("coding", model)
        for model in (
            "scripted:none",
            "openai:gpt-5.2",
            "openai-responses:gpt-5.2",
            "anthropic:claude-sonnet-5",
            "google:gemini-3-pro",
            "ollama:qwen3-coder:30b",
        )
    ),
    ("all", "scripted:none"),
]


def count_tokens(size: float) -> int:
    """Return the estimated tokens of a text of `size` bytes."""
    return round(size / BYTES_PER_TOKEN)


def main() -> None:
    """Print both tables."""
    click.echo(
        "| profile | model | system text | tools | tokens of the tools |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in ("CONFIG", "STATE"):
            os.environ[f"FERRULE_{name}"] = str(Path(folder, name.lower()))
        for profile, model in PROFILES:
            click.echo(_measure_profile(Path(folder), profile, model))
    click.echo("\n| output | tokens as written | folded | reduced |\n|---|---|---|---|")
    sums = [0, 0, 0]
    for path in sorted(OUTPUTS.iterdir()):
        sizes = _measure_output(path.read_text())
        sums = [total + size for total, size in zip(sums, sizes, strict=True)]
        click.echo(f"| {path.stem} | " + " | ".join(f"{size:,}" for size in sizes) + " |")
    click.echo("| all | " + " | ".join(f"{size:,}" for size in sums) + " |")


def _measure_profile(folder: Path, profile: str, model: str) -> str:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    given = {
        "workspace": str(work),
        "model": model,
        "journal__path": str(folder / "journal.db"),
        "tools__profile": profile,
    }
    assembly = assemble(given, notice=lambda _: None)
    session = assembly.open_session(None)
    specs = assembly.agent.visible_tools.specs()
    size = sum(
        len(json.dumps([spec.name, spec.description]).encode()) + len(spec.schema.encode())
        for spec in specs
    )
    system = count_tokens(len(session.system.encode()))
    return f"| {profile} | {model} | {system:,} | {len(specs)} | {count_tokens(size):,} |"


def _measure_output(text: str) -> list[int]:
    folded = fold_output(text)[0]
    reduced = reduce_output(folded)
    shown = folded if reduced is None else reduced.text
    return [count_tokens(len(each.encode())) for each in (text, folded, shown)]


if __name__ == "__main__":
    main()
