"""Have the protocol's own client, from npm, talk to `ferrule serve ag-ui`: `make lab NAME=ag-ui-client`.

The client is installed in an environment of its own, below `$FERRULE_BENCH_ENVS`, or
`<tmp>/ferrule-bench-envs`. It asks a server whose model is scripted: a call that is allowed, one
that is denied, one that is approved, and one that runs in the client. Every run must end as it
should, and the client must have the conversation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "@ag-ui/client@1.0.0"
ROOT = Path(__file__).resolve().parents[1]
ENVS = Path(
    os.environ.get("FERRULE_BENCH_ENVS", Path(tempfile.gettempdir()) / "ferrule-bench-envs")
)
FOLDER = ENVS / "ag-ui-client"
CLIENT = ROOT / "evals" / "ag_ui_client.mjs"
TOKEN = "the-token-of-the-page"
SECONDS = 60
SCRIPT = """\
- {reasoning: "A look first.", say: "I look.", call: [{tool: list_files, arguments: {}, id: c1}]}
- {say: "One file."}
- {call: [{tool: write_file, arguments: {path: wrong.txt, content: "one"}, id: c2}]}
- {say: "Not there, then."}
- {call: [{tool: write_file, arguments: {path: right.txt, content: "one"}, id: c3}]}
- {say: "Written."}
- {call: [{tool: pick_colour, arguments: {hint: warm}, id: c4}]}
- {say: "Red it is."}
"""
OUTCOMES = ["success", "interrupt", "success", "interrupt", "success", "success", "success"]


def print_line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def install() -> None:
    """Install the client, if it is not there."""
    if is_installed():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true, "type": "module"}\n')
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("there is no `npm` here: it comes with Node")
    subprocess.run([npm, "install", "--silent", "--no-audit", PACKAGE], cwd=FOLDER, check=True)


def is_installed() -> bool:
    """Whether the client is there, and Node."""
    found = FOLDER / "node_modules" / "@ag-ui" / "client" / "package.json"
    return found.exists() and shutil.which("node") is not None


@contextmanager
def serve(work: Path) -> Iterator[str]:
    """Serve a folder with the scripted model. Yields the endpoint's address."""
    (work / "script.yaml").write_text(SCRIPT)
    folder = work / "folder"
    folder.mkdir()
    (folder / "note.txt").write_text("a note\n")
    command = [
        *(sys.executable, "-c", "from ferrule.cli.entry import main; main()"),
        *("serve", "ag-ui", "--port", "0", "-C", str(folder)),
        *("--model", f"scripted:{work / 'script.yaml'}", "--journal", str(work / "journal.db")),
        *("--allow-tool", "list_files", "--allow-tool", "write_file"),
    ]
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("FERRULE", "XDG"))
    }
    environment = {**kept, "HOME": str(work), "FERRULE_TOKEN": TOKEN}
    process = subprocess.Popen(
        command, env=environment, text=True, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+/run", line):
                yield found[0]
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)


def converse(address: str) -> dict[str, Any]:
    """Have the client talk to the endpoint. Return what it saw."""
    copied = FOLDER / CLIENT.name
    copied.write_text(CLIENT.read_text())
    ran = subprocess.run(
        ["node", str(copied), address, TOKEN],
        cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise SystemExit(f"the client failed:\n{ran.stderr}")
    return json.loads(ran.stdout.strip().splitlines()[-1])


def find_faults(seen: dict[str, Any], folder: Path) -> list[str]:
    """Return what is not as it should be."""
    runs = seen["runs"]
    texts = [run["text"] for run in runs]
    messages = seen["messages"]
    answered = {one["answers"]: one["content"] for one in messages if one["answers"]}
    called = [call["name"] for one in messages for call in one["calls"]]
    checks = {
        "no run fails": not any(run["error"] for run in runs),
        "each run ends as it should": [run.get("outcome") for run in runs] == OUTCOMES,
        "reasoning is streamed": "REASONING_MESSAGE_CONTENT" in runs[0]["events"],
        "text is streamed": texts[0].endswith("One file.") and texts[-1] == "Red it is.",
        "a call and its result": "note.txt" in answered.get("c1", ""),
        "a question names its call": runs[1]["interrupts"][:1]
        and runs[1]["interrupts"][0]["toolCallId"] == "c2",
        "what was denied was not done": not (folder / "wrong.txt").exists()
        and "permission_denied" in answered.get("c2", ""),
        "what was approved was done": (folder / "right.txt").exists(),
        "no question is left": runs[-1]["interrupts"] == [],
        "the client's own call waits for it": runs[5]["pending"] == ["c4"],
        "the conversation is whole": called
        == ["list_files", "write_file", "write_file", "pick_colour"],
    }
    return [name for name, is_so in checks.items() if not is_so]


def main() -> int:
    """Run the conversation; return how many things were not as they should be."""
    install()
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        with serve(work) as address:
            seen = converse(address)
        faults = find_faults(seen, work / "folder")
    for number, run in enumerate(seen["runs"], 1):
        print_line(f"run {number}: {run.get('outcome', 'error')}, {' '.join(run['events'])}")
    for fault in faults:
        print_line(f"not so: {fault}")
    print_line(f"{PACKAGE}: {len(seen['runs'])} runs, {len(faults)} faults")
    return len(faults)


if __name__ == "__main__":
    raise SystemExit(main())
