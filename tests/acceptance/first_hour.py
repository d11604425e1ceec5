"""Play the first hour of somebody new, from a built wheel to the same session in a browser.

    python tests/acceptance/first_hour.py

A new home, a project with tests, an environment that is activated and lies outside the project, a
gateway on this machine whose model follows a script, a real MCP server through `npx`, a terminal in
tmux and a browser. What it prints: seconds to the first answer, what was asked before the first
edit, and how many words were on the screen that were not about the task. `make lab NAME=first-hour` also
writes the terminal to `docs/first-hour.txt`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for _folder in ("tests", "tests/interfaces", "tests/repository", "docs/screens", "evals"):
    sys.path.insert(0, str(ROOT / _folder))

import gateways  # noqa: E402
from make_screens import Stage  # noqa: E402
from mcp_servers import SERVERS, private_addresses, why_not  # noqa: E402, F401
from test_tutorial import install_wheel  # noqa: E402

from ferrule.testing.http_double import Reply  # noqa: E402

SCREEN = ROOT / "docs/first-hour.txt"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NPX_SERVER = "@modelcontextprotocol/server-everything"
COLUMNS = 100
FILES = {
    "README.md": "# Tides\n\nSays when the water is high at a pier.\n",
    "tides.py": "def next_high(hours: int) -> int:\n    return hours + 6\n",
    "test_tides.py": (
        "from tides import next_high\n\n\n"
        "def test_twelve_hours_lie_between_high_waters() -> None:\n    assert next_high(1) == 13\n"
    ),
}
"""The project. Its test fails until the model has mended `tides.py`."""


def _say(text: str) -> dict[str, Any]:
    return {"say": text}


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


SCRIPT = [
    _say("It computes when the water is high."),
    _call("read_file", path="tides.py"),
    _say("`next_high` adds six hours."),
    _call("edit_file", path="tides.py", old_string="hours + 6", new_string="hours + 12"),
    _call("run_command", command="pytest -q"),
    _say("Twelve hours lie between two high waters; the test passes now."),
    _call("everything__echo", message="ahoy"),
    _say("The server says ahoy."),
]
"""What the model behind the gateway does, request by request."""


class ScriptedGateway(gateways.Gateway):
    """A proxy like LiteLLM whose model follows `SCRIPT`."""

    steps: list[dict[str, Any]]

    def _complete(self, asked: Mapping[str, Any]) -> Reply:
        offered = [tool["function"]["name"] for tool in asked.get("tools", ())]
        if offered == ["report_ready"]:
            # Whether the model calls tools is tried once.
            return super()._complete(asked)
        step = self.steps.pop(0) if self.steps else _say("That is all I know.")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        finish = "stop"
        if "say" in step:
            deltas += [{"content": word + " "} for word in step["say"].split()]
        else:
            finish = "tool_calls"
            assert step["tool"] in offered, (step, offered)
            function = {"name": step["tool"], "arguments": json.dumps(step["arguments"])}
            call = {"index": 0, "id": f"c{len(self.steps)}", "type": "function"}
            deltas.append({"tool_calls": [{**call, "function": function}]})
        head = {"id": "x", "created": 1_780_000_000, "model": asked["model"]}
        chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        chunks.append({"index": 0, "delta": {}, "finish_reason": finish})
        sent = [{**head, "object": "chat.completion.chunk", "choices": [one]} for one in chunks]
        read = len(json.dumps(asked)) // 3
        usage = {"prompt_tokens": read, "completion_tokens": 9, "total_tokens": read + 9}
        sent.append({**head, "choices": [], "usage": usage})
        lines = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in sent]
        return Reply(200, [*lines, b"data: [DONE]\n\n"], headers=gateways.STREAM)


@dataclass
class Hour:
    """What came of it."""

    project: Path
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Since the first command was typed, by what had been reached."""
    questions_before_edit: int = 0
    screens: dict[str, str] = field(default_factory=dict[str, str])
    page: str = ""
    """The text of the session's page in the browser; "" where there is no browser."""
    mcp: str = ""
    """What the server through `npx` answered, or why it was left out."""

    def count_words(self) -> int:
        """Count the words on the screens that are neither typed, asked for nor the model's."""
        told = " ".join(" ".join(str(value) for value in one.values()) for one in SCRIPT)
        told += " ".join(FILES.values()) + " ".join(TYPED)
        known = set(re.findall(r"\w+", told.lower()))
        shown = re.findall(r"[A-Za-z]{2,}", " ".join(self.screens.values()).lower())
        return sum(word not in known for word in shown)


NEXT_DAY = "You asked about the tides."
TYPED = (
    "What is this project?",
    "What does tides.py do?",
    "The test fails. Mend it and run the tests.",
    "Say ahoy through the server.",
    "What did I ask about?",
)


@contextmanager
def play(why_no_server: str = "") -> Iterator[Hour]:
    """Play the hour; its folders are there until the context ends.

    Args:
        why_no_server: Why the MCP server is left out; "" if it is used.
    """
    with tempfile.TemporaryDirectory(prefix="ada-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        gateway = ScriptedGateway("/v1", [{"id": "house-model", "object": "model"}])
        gateway.steps = list(SCRIPT)
        hour = Hour(_make_project(place), mcp=why_no_server)
        with gateways.served(gateway) as url:
            environment = _environment(place, url, install_wheel(place))
            stage = Stage(place)
            stage.columns = COLUMNS
            try:
                _talk(stage, hour, environment, gateway)
            finally:
                stage.end()
            _look(hour, environment)
            yield hour


def _make_project(place: Path) -> Path:
    project = place / "tides"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *who, *words], cwd=project, check=True)
    return project


def _environment(place: Path, url: str, programs: Path) -> dict[str, str]:
    """A person's environment, with one for the project that they have activated."""
    home = place / "home"
    active = home / "envs/tides"
    venv.create(active, symlinks=True)
    [packages] = active.glob("lib/python*/site-packages")
    purelib = sysconfig.get_path("purelib")
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(Path(purelib) / name, packages / name)
    shutil.copy(Path(purelib) / "py.py", packages)
    script = f"#!{active}/bin/python\nimport pytest\nraise SystemExit(pytest.main())\n"
    (active / "bin/pytest").write_text(script)
    (active / "bin/pytest").chmod(0o755)
    return {
        "PATH": f"{active}/bin:{programs}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(active),
        "HOME": str(home),
        "LOGNAME": "ada",
        "LANG": "C.UTF-8",
        "PS1": "$ ",
        "OPENAI_API_KEY": gateways.KEY,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OLLAMA_HOST": "http://127.0.0.1:9",
        **{name: value for name, value in os.environ.items() if name.lower().startswith("npm_")},
    }


def _talk(stage: Stage, hour: Hour, environment: dict[str, str], gateway: ScriptedGateway) -> None:
    began = time.monotonic()

    def reached(what: str) -> None:
        hour.seconds[what] = round(time.monotonic() - began, 1)
        hour.screens[what] = stage.screen()

    # By `env`: tmux keeps the path of its own server.
    variables = [f"{name}={value}" for name, value in environment.items()]
    shell = ["env", "-i", *variables, "TERM=tmux-256color", "bash", "--norc", "--noprofile"]
    stage.start(shell, {}, hour.project)
    stage.wait("$", last=True)
    stage.type("ferrule setup")
    stage.wait("q to leave")
    stage.type("")
    stage.wait("is used from now on")
    reached("setup")
    stage.wait("$", last=True)
    stage.begin()
    stage.type(f"ferrule run '{TYPED[0]}'")
    stage.wait("when the water is high.")
    stage.wait("$", last=True)
    reached("first answer")
    stage.begin()
    stage.type("ferrule chat")
    stage.wait("›", last=True)
    stage.ask(TYPED[1])
    reached("a file explained")
    stage.begin()
    stage.type(TYPED[2])
    stage.question()
    hour.questions_before_edit = stage.screen().count("allow?")
    stage.type("1")
    _allow_until(stage, "the test passes now.")
    stage.settled(TYPED[2])
    reached("edited and tested")
    assert "hours + 12" in (hour.project / "tides.py").read_text()
    stage.ask("/diff")
    reached("diff")
    stage.begin()
    stage.type("/undo")
    stage.wait("[Y/n]")
    stage.type("y")
    stage.settled("/undo")
    reached("undone")
    assert "hours + 6" in (hour.project / "tides.py").read_text()
    _leave(stage)
    if not hour.mcp:
        _use_server(stage, hour, reached)
    gateway.steps = [_say(NEXT_DAY)]
    stage.begin()
    stage.type("ferrule chat --continue")
    stage.wait("›", last=True)
    stage.ask(TYPED[4])
    reached("the next day")
    _leave(stage)


def _leave(stage: Stage) -> None:
    stage.press("C-d")
    stage.wait("this session:")
    stage.wait("$", last=True)


def _use_server(stage: Stage, hour: Hour, reached: Callable[[str], None]) -> None:
    """Add a real MCP server as its README says, approve it, and use it in a chat."""
    opened = private_addresses(("npx", "-y", NPX_SERVER))
    options = "".join(f"--network {address} " for address in opened)
    stage.begin()
    stage.type(f"ferrule mcp add everything {options}-- npx -y {NPX_SERVER}")
    stage.wait("$", last=True)
    stage.begin()
    stage.type("ferrule mcp approve")
    stage.wait("[y/N]")
    stage.type("y")
    stage.until(lambda: stage.screen().rstrip().endswith("$"), "the approval")
    stage.begin()
    stage.type("ferrule chat --continue")
    stage.wait("›", last=True)
    stage.begin()
    stage.type(TYPED[3])
    _allow_until(stage, "The server says", answered=0)
    stage.settled(TYPED[3])
    hour.mcp = stage.screen()
    reached("an MCP server used")
    _leave(stage)


def _allow_until(stage: Stage, text: str, *, answered: int = 1) -> None:
    """Answer further questions with yes until a text is shown."""

    def is_asked() -> bool:
        return stage.screen().count("allow?") > answered

    while True:
        stage.until(lambda: text in stage.screen() or is_asked(), text)
        if text in stage.screen():
            return
        stage.type("1")
        answered += 1


def _look(hour: Hour, environment: dict[str, str]) -> None:
    """Open the session in a browser."""
    if CHROMIUM is None:
        return
    from playwright.sync_api import sync_playwright

    words = ["ferrule", "serve", "console", "--port", "0"]
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None
    with subprocess.Popen(
        [program, *words[1:]],
        cwd=hour.project,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    ) as server:
        assert server.stdout is not None
        try:
            found = None
            while found is None:
                found = re.search(r"http://\S+", server.stdout.readline())
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                )
                page = browser.new_page()
                page.goto(found[0])
                page.goto(page.url.partition("/login")[0].rstrip("/"))
                page.get_by_role("link", name=TYPED[1]).first.click()
                page.locator(".entries").wait_for()
                hour.page = page.locator("main").inner_text()
                browser.close()
        finally:
            server.terminate()


def report(hour: Hour) -> Iterator[str]:
    """Yield the lines of the table."""
    for what, seconds in hour.seconds.items():
        yield f"{what:24}{seconds:6.1f} s"
    yield f"{'questions before the first edit':40}{hour.questions_before_edit}"
    yield f"{'words that were not about the task':40}{hour.count_words()}"


if __name__ == "__main__":
    with play() as played:
        print(*report(played), sep="\n")
        if "--write" in sys.argv:
            text = f"\n{'-' * COLUMNS}\n".join(played.screens.values())
            SCREEN.write_text(text.replace(str(played.project.parent), "/home/ada") + "\n")
        else:
            print(*played.screens.values(), played.mcp, played.page, sep=f"\n{'-' * COLUMNS}\n")
