"""`make demo`: a real model on this machine reads, searches and edits a file, in one conversation.

    python examples/demo.py [local:NAME | local:PATH.gguf]

Nothing is scripted. The embedded model is tiny, so it is helped: what is the model's and what is
help is said in the first two lines. Each call goes through the gate and into the journal: reading
is allowed by a rule, and the edit is shown as a diff before it is approved, here by this program in
place of a person. A model whose chat template has tools chooses by itself and is not helped.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from ferrule import Agent, ApprovalAnswer, ApprovalRequest, Permissions, Session, Storage
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
MESSAGES = (
    "What is the port in config.yaml?",
    "Search the files for TODO.",
    "Change '8080' to '9090' in config.yaml and then read config.yaml.",
    "Thanks, that is all!",
)
WHOSE = """\
the model's:  the meaning of a request (its hidden state), values no rule finds, the words of answers
help:         the choice among tools, values copied from the request, no change without an order"""
"""What is the model's and what is help (docs/local-models.md says what each is worth)."""


def prepare(folder: Path) -> Path:
    """Make the small project that the messages are about, and return its folder."""
    project = folder / "lighthouse"
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return project


class ShowThenApprove:
    """Shows what a call would change, and says yes once."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer as a person would who has read the diff."""
        _print("preview", request.preview or request.reason)
        return ApprovalAnswer("once", by="demo", note="approved by the demo")


async def main(folder: Path, model: str) -> None:
    """Hold the conversation, print every step."""
    print(WHOSE)
    agent = Agent(
        model,
        [*FILE_TOOLS, *BROWSE_TOOLS, *SEARCH_TOOLS, *CLOCK_TOOLS],
        workspace=prepare(folder),
        permissions=Permissions(allow=["Read(**)"], approver=ShowThenApprove()),
        storage=Storage(journal=folder / "demo.db"),
    )
    session = agent.session()
    try:
        for message in MESSAGES:
            await answer(session, message)
    finally:
        await session.close()
        await agent.close()


async def answer(session: Session, message: str) -> None:
    """One message, shown as it is answered."""
    print(f"\n> {message}")
    begin = time.perf_counter()
    async for item in session.stream(message):
        if isinstance(item, ModelAnswered):
            for call in item.calls:
                print(f"  call    {call.tool} {call.arguments}   ({item.tool_mode})")
        elif isinstance(item, CallEvaluated):
            print(f"  gate    {item.verdict}: {item.reason}")
        elif isinstance(item, ToolAnswered):
            _print("result", item.result.to_text())
        elif isinstance(item, RunFinished):
            _print("answer", f"{item.text.strip()}   [{time.perf_counter() - begin:.1f} s]")


def _print(label: str, text: str) -> None:
    shown = text.strip().replace("\n", "\n          ")
    print(f"  {label:7} {shown}")


if __name__ == "__main__":
    named = sys.argv[1] if len(sys.argv) > 1 else "local:smollm2"
    with tempfile.TemporaryDirectory(prefix="ferrule-demo-") as made:
        asyncio.run(main(Path(made), named))
