"""What a strong model's hands cost: tokens of results, questions, seconds.

    python benchmarks/hands.py [--ferrule PATH] [--family openai|anthropic] [--modes default]

A scripted model on loopback makes the same calls in a small repository that is made anew each time,
through the command line as it is installed. Printed are the tokens of the first request and of each
result, how many calls of twelve ran without a person, the seconds of three commands of one answer,
and how many of 61 answers were asked for. Tokens are counted with `bpe_openai` (o200k_base) where it
is installed, else as a quarter of the bytes, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]

EVERYTHING = ("--mode", "bypassPermissions")
MISS = "        return sum(line.price for line in lines)"
HIT = "        return sum(line.price for line in self.lines)"
NEW = "        return sum(line.price * line.count for line in self.lines)"
FILES = {
    "README.md": "# shop\n\nA small shop.\n",
    "AGENTS.md": "Run `python3 -m pytest -q` before you commit.\n",
    "src/shop/__init__.py": "",
    "src/shop/cart.py": "\n".join(
        [
            "class Line:",
            "    def __init__(self, price, count):",
            "        self.price = price",
            "        self.count = count",
            "",
            "",
            "class Cart:",
            "    def __init__(self):",
            "        self.lines = []",
            "",
            "    def add(self, price, count=1):",
            "        self.lines.append(Line(price, count))",
            "",
            "    def total(self):",
            HIT,
            "",
        ]
    ),
    "fail.sh": "for i in $(seq 1 20); do echo line $i of what went wrong; done\nexit 1\n",
}


def make_repository(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    rows = [
        f"{number:04d} the quick brown fox jumps over the lazy dog and goes home"
        + (" zebrafish" if number % 133 == 7 else "")
        for number in range(1, 4001)
    ]
    (folder / "big.txt").write_text("\n".join(rows) + "\n")
    subprocess.run(["git", "init", "-q", folder], check=True)


# ---- the scripted model


class Stub(ThreadingHTTPServer):
    """Answers chat completions and messages from a script; keeps the requests."""

    daemon_threads = True

    def __init__(self, script: list[list[Call]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.lock = threading.Lock()

    def next_calls(self, body: dict[str, Any]) -> tuple[int, list[Call]]:
        with self.lock:
            self.requests.append(body)
            self.times.append(time.monotonic())
            number = len(self.requests)
        return number, self.script[number - 1] if number <= len(self.script) else []


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"object": "list", "data": [{"id": "strong-1"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number, calls = self.server.next_calls(body)
        events = _messages(number, calls) if "messages" in self.path else _chat(number, calls)
        self._send("text/event-stream", events)

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _chat(number: int, calls: list[Call]) -> str:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "data: " + json.dumps({"id": f"c{number}", "choices": [choice]}) + "\n\n"

    parts = [chunk({"role": "assistant", "content": "" if calls else "done"})]
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        parts.append(chunk({"tool_calls": [{**call, "function": function}]}))
    return "".join([*parts, chunk({}, "tool_calls" if calls else "stop"), "data: [DONE]\n\n"])


def _messages(number: int, calls: list[Call]) -> str:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "m"}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {**head, "content": [], "usage": usage}})
    ]
    if not calls:
        block: dict[str, Any] = {"type": "text", "text": "done"}
        events.append(("content_block_start", {"index": 0, "content_block": block}))
        events.append(("content_block_stop", {"index": 0}))
    for index, (name, arguments) in enumerate(calls):
        block = {"type": "tool_use", "id": f"t{number}_{index}", "name": name, "input": {}}
        text = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        events.append(("content_block_start", {"index": index, "content_block": block}))
        events.append(("content_block_delta", {"index": index, "delta": text}))
        events.append(("content_block_stop", {"index": index}))
    reason = "tool_use" if calls else "end_turn"
    events.append(("message_delta", {"delta": {"stop_reason": reason}, "usage": usage}))
    events.append(("message_stop", {}))
    return "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events
    )


# ---- one run


class Ran:
    """What one run sent, and how it ended."""

    def __init__(self, stub: Stub, status: int) -> None:
        self.requests = stub.requests
        self.times = stub.times
        self.status = status

    def results(self) -> list[str]:
        found: list[str] = []
        longest = max(self.requests, key=lambda body: len(body["messages"]))
        for message in longest["messages"]:
            content = message.get("content")
            if message["role"] == "tool":
                found.append(_text(content))
            elif isinstance(content, list):
                blocks = [block for block in content if block.get("type") == "tool_result"]
                found += [_text(block["content"]) for block in blocks]
        return found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def run(ferrule: str, family: str, script: list[list[Call]], *options: str) -> Ran:
    """Run `ferrule run` against a script, in a fresh repository with a home of its own."""
    stub = Stub(script)
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    # Not below /tmp: commands have a folder of their own in its place.
    above = Path(tempfile.mkdtemp(prefix="ferrule-hands-", dir=Path.home()))
    try:
        work = above / "work"
        work.mkdir()
        make_repository(work)
        address = f"http://127.0.0.1:{stub.server_port}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(above / "home"),
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            "OPENAI_API_KEY": "x",
            "OPENAI_BASE_URL": f"{address}/v1",
            "ANTHROPIC_API_KEY": "x",
            "ANTHROPIC_BASE_URL": address,
        }
        (above / "home").mkdir()
        model = "openai:strong-1" if family == "openai" else "anthropic:claude-sonnet-5"
        words = [ferrule, "run", "-m", model, *options, "Say what this project is."]
        ended = subprocess.run(
            words,
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if not stub.requests:
            sys.exit(f"{' '.join(words)} sent no request:\n{ended.stderr}")
        return Ran(stub, ended.returncode)
    finally:
        stub.shutdown()
        shutil.rmtree(above, ignore_errors=True)


# ---- the calls, in each family's names


def command(family: str, text: str) -> Call:
    return ("bash" if family == "anthropic" else "run_command", {"command": text})


def read(family: str, path: str, lines: tuple[int, int] | None = None) -> Call:
    if family == "anthropic":
        given = {"view_range": list(lines)} if lines else {}
        return "str_replace_based_edit_tool", {"command": "view", "path": path, **given}
    given = {"line_start": lines[0], "line_end": lines[1]} if lines else {}
    return "read_file", {"path": path, **given}


def edit(family: str, old: str) -> Call:
    path = "src/shop/cart.py"
    if family == "anthropic":
        values = {"command": "str_replace", "path": path, "old_str": old, "new_str": NEW}
        return "str_replace_based_edit_tool", values
    return "edit_file", {"path": path, "old_string": old, "new_string": NEW}


def operations(family: str) -> dict[str, Call]:
    if family == "anthropic":
        tree: Call = ("str_replace_based_edit_tool", {"command": "view", "path": "."})
    else:
        tree = ("list_files", {})
    return {
        "small file": read(family, "src/shop/cart.py"),
        "file of 4,000 lines": read(family, "big.txt"),
        "lines 100-150": read(family, "big.txt", (100, 150)),
        "search, 31 hits": ("search_files", {"pattern": "zebrafish"}),
        "folder": tree,
        "command with status 1": command(family, "sh fail.sh"),
        "168 KB of output": command(family, "seq 1 30000"),
        "missed edit": edit(family, MISS),
    }


def twelve(family: str) -> list[Call]:
    return [
        read(family, "README.md"),
        ("search_files", {"pattern": "zebrafish"}),
        command(family, "ls"),
        command(family, "cat README.md"),
        command(family, "git status --short"),
        command(family, "python3 -c 'print(1)' 2>&1 | tail -3"),
        edit(family, HIT),
        command(family, "echo hi > new.txt"),
        command(family, "rm README.md"),
        command(family, "curl -sS -m 3 http://127.0.0.1:9/"),
        command(family, "echo x > ../outside.txt"),
        command(family, "cat /etc/hostname"),
    ]


def find_counter() -> tuple[str, Callable[[str], int]]:
    try:
        import bpe_openai  # optional
    except ImportError:
        return "a quarter of the bytes", lambda text: len(text.encode()) // 4
    encoding = bpe_openai.get_encoding("o200k_base")
    return "o200k_base", lambda text: len(encoding.encode(text))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ferrule", default=str(Path(sys.executable).with_name("ferrule")))
    parser.add_argument("--family", choices=["openai", "anthropic"], default="openai")
    parser.add_argument("--modes", default="default,sandboxed")
    given = parser.parse_args()
    name, count = find_counter()
    print(f"tokens: {name}; tools of family: {given.family}")

    def start(script: list[list[Call]], *options: str) -> Ran:
        return run(given.ferrule, given.family, script, *options)

    calls = operations(given.family)
    ran = start([[call] for call in calls.values()], *EVERYTHING)
    body = json.dumps(ran.requests[0], ensure_ascii=False, separators=(",", ":"))
    print(f"first request ({len(ran.requests[0]['tools'])} tools): {count(body)}")
    tokens = [count(text) for text in ran.results()]
    for label, one in zip(calls, tokens, strict=False):
        print(f"  {label}: {one}")
    print(f"results of {len(tokens)} operations: {sum(tokens)}")
    for mode in given.modes.split(","):
        ran = start([[call] for call in twelve(given.family)], "--mode", mode)
        denied = [text for text in ran.results() if "permission_denied" in text]
        longest = max(map(count, denied), default=0)
        print(
            f"twelve calls without a person, mode {mode}: {len(ran.results()) - len(denied)} ran, "
            f"longest denial {longest} tokens, exit code {ran.status}"
        )
    sleeps = [command(given.family, f"sleep 3; echo {letter}") for letter in "abc"]
    ran = start([sleeps], *EVERYTHING)
    print(f"three `sleep 3` of one answer: {ran.times[1] - ran.times[0]:.1f} s")
    many = [[command(given.family, f"echo {number}")] for number in range(60)]
    ran = start(many, *EVERYTHING)
    print(f"answers of 61: {len(ran.requests)}, exit code {ran.status}")


if __name__ == "__main__":
    main()
