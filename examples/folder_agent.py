"""A model at work in a folder, held by rules. `--model ollama:llama3.2` asks a real model."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ferrule import Agent, Permissions, Scripted
from ferrule.testing import calls, says
from ferrule.toolkits import BROWSE_TOOLS, FILE_TOOLS, SEARCH_TOOLS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as ollama:llama3.2; without it, a script plays the model")
script = [
    calls(("search_files", {"pattern": "TODO"}), ("read_file", {"path": "notes/plan.md"})),
    calls(("write_file", {"path": "notes/done.md", "content": "sails: mended\n"})),
    # None of these happens: not allowed, a secret name, a deny rule, outside the folder.
    calls(
        ("write_file", {"path": "src/boat.py", "content": ""}),
        ("read_file", {"path": ".env"}),
        ("read_file", {"path": "private/diary.md"}),
        ("read_file", {"path": "../elsewhere.txt"}),
    ),
    says("The plan says to mend the sails; I noted that it is done."),
]
with tempfile.TemporaryDirectory() as folder:
    for name in ("notes/plan.md", "private/diary.md", "src/boat.py", ".env"):
        Path(folder, name).parent.mkdir(exist_ok=True)
        Path(folder, name).write_text("TODO: mend the sails\n")
    tools = [*FILE_TOOLS, *BROWSE_TOOLS, *SEARCH_TOOLS]
    model = parser.parse_args().model or Scripted(script)
    allow = ["Read(**)", "Edit(notes/**)"]
    agent = Agent(
        model,
        tools,
        workspace=folder,
        permissions=Permissions(allow=allow, deny=["Read(private/**)"]),
    )
    answer = agent.run_sync("What is still to do? Do it, and note it in notes/done.md.")
for result in answer.results:
    print("ok  " if result.success else "no  ", result.tool, result.error_message or result.data)
print(answer.text)
