"""What the journal remembers: verify, resume, export. `--model ollama:llama3.2` asks a real
model.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from ferrule import Agent, LimitReached, Limits, Scripted, Storage, tool
from ferrule.storage import export_jsonl, write_markdown
from ferrule.testing import calls, says


@tool(side_effect="none")
def roll(sides: int) -> int:
    """Roll a die."""
    return sides // 2


async def main(model: str | None, file: Path) -> None:
    one = Limits(max_turns=1)
    first = Agent(
        model or Scripted([calls(("roll", {"sides": 6}))]),
        [roll],
        limits=one,
        storage=Storage(journal=file),
    )
    session = first.session()
    try:
        await session.run("Roll a die with six sides.")
    except LimitReached as limit:
        print(limit)
    await session.close()
    # Another agent, perhaps in another process on another day, goes on with what the first one
    # left.
    second = Agent(
        model or Scripted([says("It came up 3.")]), [roll], storage=Storage(journal=file)
    )
    session = second.resume(session.id)
    print((await session.run("And?")).text)
    second.journal.verify(session.id)
    print("".join(write_markdown(second.journal.records(session.id))))
    print("lines of JSON:", len(list(export_jsonl(second.journal.records(session.id)))))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as ollama:llama3.2; without it, a script plays the model")
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(parser.parse_args().model, Path(folder, "journal.db")))
