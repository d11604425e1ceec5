"""`make demo`: a real 135M-parameter model on this machine answers questions about a folder by
calling tools.

Nothing is scripted, and a model this small is led: which tool a request means is a score in which
the model's own hidden state weighs most, beside the words of the tools' descriptions; arguments are
copied from the request by rules that know no tool, and generated under a grammar where it does not
hold them; the answer is the model's words where they hold something of the result, and the result.
Each call goes through the gate and into the journal; reading is allowed by a rule, everything else
would ask.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from ferrule import Agent, Permissions, Storage
from ferrule.events import CallEvaluated, ModelAnswered, RunFinished, ToolAnswered
from ferrule.toolkits import BROWSE_TOOLS, CLOCK_TOOLS, FILE_TOOLS, SEARCH_TOOLS

FILES = {
    "config.yaml": "name: lighthouse\nport: 8080\nkeeper: Ines\n",
    "README.md": "# Lighthouse\n\nKeeps the lamp burning and the log written.\n",
    "src/lamp.py": (
        "def light(hours: int) -> str:\n    # TODO: dim the lamp at dawn\n    return 'on' * hours\n"
    ),
    "src/log.py": "ENTRIES: list[str] = []\n\n\ndef write(line: str) -> None:\n    ENTRIES.append(line)\n",
}
QUESTIONS = (
    "What is the port in config.yaml?",
    "List the files in the src folder.",
    "Search the files for TODO.",
)


def prepare(folder: Path) -> None:
    """Make the small project that the questions are about."""
    for name, text in FILES.items():
        path = folder / "lighthouse" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def main(folder: Path) -> None:
    """Ask the questions, print every step."""
    agent = Agent(
        "local:smollm2",
        [*FILE_TOOLS, *BROWSE_TOOLS, *SEARCH_TOOLS, *CLOCK_TOOLS],
        workspace=folder / "lighthouse",
        permissions=Permissions(allow=["Read(**)"]),
        storage=Storage(journal=folder / "demo.db"),
    )
    try:
        for question in QUESTIONS:
            await ask(agent, question)
    finally:
        await agent.close()


async def ask(agent: Agent, question: str) -> None:
    """One question, shown as it is answered."""
    print(f"\n> {question}")
    begin = time.perf_counter()
    async for item in agent.stream(question):
        if isinstance(item, ModelAnswered):
            for call in item.calls:
                print(f"  call    {call.tool} {call.arguments}   ({item.tool_mode})")
        elif isinstance(item, CallEvaluated):
            print(f"  gate    {item.verdict}: {item.reason}")
        elif isinstance(item, ToolAnswered):
            shown = item.result.to_text().strip().replace("\n", "\n          ")
            print(f"  result  {shown}")
        elif isinstance(item, RunFinished):
            print(f"  answer  {item.text.strip()}   [{time.perf_counter() - begin:.1f} s]")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ferrule-demo-") as made:
        prepare(Path(made))
        asyncio.run(main(Path(made)))
