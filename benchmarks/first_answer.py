"""Time `ferrule run` of one question, from the start of its process to its end.

The model is a stub on this machine that answers at once, so what is measured is everything else.
Commands are run in turn, so that what else the machine does falls on all of them alike. `llm` is
measured beside it if its environment is given:

    python benchmarks/first_answer.py --llm ENVIRONMENT/bin/llm
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "stub-1"
USAGE = {"prompt_tokens": 3000, "completion_tokens": 2, "total_tokens": 3002}


class Stub(BaseHTTPRequestHandler):
    """A chat completions server: it says `Hello there.`, or calls the tool of a probe."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        names = [tool["function"]["name"] for tool in asked.get("tools") or ()]
        if names == ["report_ready"]:
            function = {"name": "report_ready", "arguments": '{"ready": true}'}
            call = {"id": "call_1", "index": 0, "type": "function", "function": function}
            self._answer(asked, {"role": "assistant", "tool_calls": [call]}, "tool_calls")
        else:
            self._answer(asked, {"role": "assistant", "content": "Hello there."}, "stop")

    def _answer(self, asked: dict[str, Any], message: dict[str, Any], finish: str) -> None:
        kind = "chat.completion"
        head = {"id": "answer_1", "created": 1, "model": MODEL, "usage": USAGE}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self._send({**head, "object": kind, "choices": [choice]})
            return
        choice = {"index": 0, "delta": message, "finish_reason": finish}
        chunk = {**head, "object": f"{kind}.chunk", "choices": [choice]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self._send_bytes(body, "text/event-stream")

    def _send(self, value: dict[str, Any]) -> None:
        self._send_bytes(json.dumps(value).encode(), "application/json")

    def _send_bytes(self, body: bytes, media_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def measure(command: list[str], environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """Run a command. Return seconds of wall clock and of processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    ended = subprocess.run(
        command,
        check=False,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode or ended.stdout.strip() != b"Hello there.":
        sys.exit(f"{command}: exit {ended.returncode}, {ended.stdout!r} {ended.stderr!r}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(port: int, home: Path, llm: str) -> dict[str, list[str]]:
    """Return what is measured, by name."""
    bin_folder = Path(sys.executable).parent
    chosen = {"ferrule run": [f"{bin_folder}/ferrule", "run", "-m", f"openai:{MODEL}", "Hello"]}
    if llm:
        entry = {"model_id": MODEL, "model_name": MODEL, "api_base": f"http://127.0.0.1:{port}/v1"}
        (home / "extra-openai-models.yaml").write_text(json.dumps([entry]))
        chosen["llm"] = [llm, "-m", MODEL, "--key", "k", "Hello"]
    chosen["python -c pass"] = [sys.executable, "-c", "print('Hello there.')"]
    return chosen


def main() -> None:
    """Measure, and print a line for each command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--llm", default="", help="the program `llm` of an environment")
    parser.add_argument("--runs", type=int, default=20)
    chosen = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "work").mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LLM_USER_PATH": folder,
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
        }
        measured = commands(server.server_port, home, chosen.llm)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
        for number in range(chosen.runs + 1):
            for name, command in measured.items():
                one = measure(command, environment, home / "work")
                if number:  # the first run of each warms the file cache and compiles
                    taken[name].append(one)
    print(f"{chosen.runs} runs of each, in turn; load of the machine {os.getloadavg()[0]:.1f}")
    print("| command | seconds, median | least | seconds of processor, median | least |")
    print("|---|---|---|---|---|")
    for name, runs in taken.items():
        wall = [one[0] for one in runs]
        processor = [one[1] for one in runs]
        cells = (statistics.median(wall), min(wall), statistics.median(processor), min(processor))
        print(f"| `{name}` | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
