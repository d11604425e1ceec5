"""An approver in Python: who answers when the rules ask. `--model ollama:llama3.2` asks a real
model.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ferrule import Agent, ApprovalAnswer, ApprovalRequest, Permissions, Scripted
from ferrule.testing import calls, says
from ferrule.toolkits import FILE_TOOLS


class Policy:
    """Lets files be written, each for the whole session once it was asked about; deletes
    nothing.
    """

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        print(f"? {request.tool.name}: {request.reason}\n{request.preview}")
        if request.tool.name != "write_file":
            return ApprovalAnswer(
                "deny", by="policy", note="this policy only lets files be written"
            )
        offered = next(offer for offer in request.offers if offer.choice == "session")
        return ApprovalAnswer("session", offered.rule, by="policy")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as ollama:llama3.2; without it, a script plays the model")
script = [
    calls(("write_file", {"path": "note.txt", "content": "one\n"})),
    calls(
        ("write_file", {"path": "note.txt", "content": "two\n"}),
        ("delete_path", {"path": "plan.txt"}),
    ),
    says("The note says two. I was not allowed to delete the plan."),
]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "plan.txt").write_text("keep me\n")
    model = parser.parse_args().model or Scripted(script)
    agent = Agent(model, FILE_TOOLS, workspace=folder, permissions=Permissions(approver=Policy()))
    answer = agent.run_sync("Write one, then two into note.txt, then delete plan.txt.")
    print({path.name: path.read_text() for path in sorted(Path(folder).iterdir())})
print(
    *[f"{result.tool}: {result.error_message or 'ok'}" for result in answer.results],
    answer.text,
    sep="\n",
)
