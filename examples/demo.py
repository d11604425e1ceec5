"""`make demo`: a real 135M-parameter model on this machine answers questions about a folder by calling tools.

Nothing is scripted: the model chooses the tool and its arguments (constrained to their schemas), the call goes
through the gate, the journal keeps all of it. Reading is allowed by a rule; everything else would ask.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from ferrule import Agent
from ferrule.core.events import CallEvaluated, ModelAnswered, RunFinished, ToolAnswered
from ferrule.toolkits import browse, clock, files, search

FILES = {
    "config.yaml": "name: lighthouse\nport: 8080\nkeeper: Ines\n",
    "README.md": "# Lighthouse\n\nKeeps the lamp burning and the log written.\n",
    "src/lamp.py": "def light(hours: int) -> str:\n    # TODO: dim the lamp at dawn\n    return 'on' * hours\n",
    "src/log.py": "ENTRIES: list[str] = []\n\n\ndef write(line: str) -> None:\n    ENTRIES.append(line)\n",
}
QUESTIONS = (
    "What port is set in config.yaml?",
    "List the files in the src folder.",
    "Search the files for TODO.",
)


async def main() -> None:
    """Make the folder, ask the questions, print every step."""
    with tempfile.TemporaryDirectory(prefix="ferrule-demo-") as folder:
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        tools = [*files.TOOLS, *browse.TOOLS, *search.TOOLS, *clock.TOOLS]
        agent = Agent("local:smollm2", tools, workspace=folder, allow=["Read(**)"], journal=Path(folder, "demo.db"))
        try:
            for question in QUESTIONS:
                await ask(agent, question)
        finally:
            await agent.wire.close()


async def ask(agent: Agent, question: str) -> None:
    """One question, shown as it is answered."""
    print(f"\n> {question}")
    begin = time.perf_counter()
    async for item in agent.stream(question):
        if isinstance(item, ModelAnswered):
            for call in item.calls:
                print(f"  call    {call.tool} {call.arguments}   ({item.way})")
        elif isinstance(item, CallEvaluated):
            print(f"  gate    {item.verdict}: {item.reason}")
        elif isinstance(item, ToolAnswered):
            shown = item.result.text().strip().replace("\n", "\n          ")
            print(f"  result  {shown}")
        elif isinstance(item, RunFinished):
            print(f"  answer  {item.text.strip()}   [{time.perf_counter() - begin:.1f} s]")


if __name__ == "__main__":
    asyncio.run(main())
