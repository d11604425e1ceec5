"""Makes the screens of `docs/chat.md`: a real `ferrule chat` in tmux, driven as a person would,
with a scripted model.

    python docs/screens/make_screens.py

writes `docs/screens/*.txt` and puts them into `docs/chat.md`. `tests/interfaces/test_chat.py` plays
the same hour and looks at what came of it. What differs from run to run (ids, times, the folder) is
replaced; nothing waits for a fixed time.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "chat.md"
HOME = "/home/ada"
"""Stands for the temporary folder, whose name is as long: so lines break at the same places."""
COLUMNS, LINES = 96, 40
WIDTHS = (60, 120)
"""Columns of the terminals that the tour is played in."""
SECONDS = 60.0
"""A screen that does not show what it should by then is an error."""
PROMPT, QUESTION = "›", "allow? [1-"
STATUS = re.compile(r"\n+\w+:[^\n]* · mode \w+\s*\Z")
"""The line below the input, at the bottom of the terminal."""

FILES = {
    "lighthouse/log.md": "# Log\n\n- Monday: calm, lamp lit at 21:04\n- Tuesday: fog, horn every minute\n",
    "lighthouse/supplies.md": "# Supplies\n\n- oil: 3 barrels\n- wicks: 12\n- bread: 2 loaves\n",
    "lighthouse/wind.sh": "#!/bin/sh\ntouch measuring\nexec sleep 600\n",
}


def edit(old: str, new: str, path: str = "supplies.md") -> dict[str, object]:
    arguments = {"path": path, "old_string": old, "new_string": new}
    return {"call": [{"tool": "edit_file", "arguments": arguments}]}


def read(path: str) -> dict[str, object]:
    return {"call": [{"tool": "read_file", "arguments": {"path": path}}]}


def command(*words: str, say: str = "") -> dict[str, object]:
    return {"say": say, "call": [{"tool": "run_command", "arguments": {"command": list(words)}}]}


EVENING = [
    edit("3 barrels", "2 barrels"),
    {"say": "Two barrels of oil are left; the list says so now."},
    edit("wicks: 12", "wicks: 11"),
    {"say": "Eleven wicks."},
    edit("bread: 2 loaves", "bread: 1 loaf"),
    {"say": "One loaf."},
    edit("every minute", "every two minutes", "log.md"),
    {"say": "It is in the log."},
    command("rm", "log.md", say="The log is old, I will remove it."),
    {"say": "I left the log as it is."},
    command("./wind.sh", say="This takes a while."),
    command("./wind.sh", say="Once more."),
    {"say": "I am still here."},
]
MORNING = [read("log.md"), {"say": "Fog on Tuesday, as I said."}]
NOON = [
    edit("every two minutes", "every minute", "log.md"),
    edit("1 loaf", "0 loaves"),
    {"say": "No bread left, and the log is right again."},
]

PLAN = """# The plan

The lamp needs **oil** and `wicks` before the fog comes back; the boat brings both on Thursday, if the sea lets it.

1. Fill the tank.
2. Trim the wicks:
   - the long ones first
   - then the spare ones

| day | weather | lamp lit |
|-----|---------|---------:|
| Monday | calm | 21:04 |
| Tuesday | fog, so the horn sounded every minute of the night | 20:50 |

```python
def barrels(nights: int) -> float:
    return nights / 3  # one barrel lasts three nights
```

> *Never* let the light go out.
"""
TOUR = [
    {"say": PLAN},
    command("./wind.sh", say="This takes a while."),
    {"say": "I stopped measuring."},
    edit("wicks: 12", "wicks: 11"),
    {"say": "Eleven wicks."},
    read("log.md"),
    read("supplies.md"),
    {"say": "Both are in order."},
    {"say": "Twelve wicks, I would say."},
]


@dataclass
class Hour:
    """What was seen: screens by name, and the folder with everything that was left behind."""

    folder: Path
    screens: dict[str, str] = field(default_factory=dict)
    before_write: str = ""
    """`supplies.md` while the first diff was on the screen."""


class Stage:
    """One terminal in a tmux server of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._outside = {
            name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR")
        }
        self._tmux: list[str] = []
        self._from = 0
        self.columns = COLUMNS

    def start(self, words: list[str], environment: dict[str, str], folder: Path) -> None:
        """Run a program in a fresh terminal; the one before is ended."""
        self.end()
        # A server that is ending still answers at its socket: each gets its own.
        self._tmux = [
            "tmux",
            "-S",
            str(self._folder / f"tmux-{folder.name}-{random.getrandbits(32):x}"),
            "-f",
            os.devnull,
        ]
        settings = [
            word for name, value in environment.items() for word in ("-e", f"{name}={value}")
        ]
        size = ["-x", str(self.columns), "-y", str(LINES)]
        self._run("new-session", "-d", "-s", "chat", *size, *settings, "-c", str(folder), *words)
        self._run("set-option", "-g", "history-limit", "5000")
        self._run("set-option", "-g", "remain-on-exit", "on")
        self._from = 0

    def end(self) -> None:
        """Give the terminal back."""
        if self._tmux:
            subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)

    def screen(self, *, whole: bool = False) -> str:
        """Everything since the last `begin`, without what is blank at the end.

        `whole`: with the status line.
        """
        lines = self._everything()[self._from :]
        text = "\n".join(line.rstrip() for line in lines).rstrip("\n")
        return text if whole else STATUS.sub("", text)

    def begin(self) -> None:
        """A new screen starts at the prompt that is open now."""
        text = "\n".join(self._everything()).rstrip()
        self._from = len(STATUS.sub("", text).split("\n")) - 1

    def write(self, text: str) -> None:
        """Type a text without Enter."""
        self._run("send-keys", "-t", "chat", "-l", text)

    def wait(self, text: str, *, last: bool = False, whole: bool = False) -> None:
        """Until the screen holds `text`; `last`: until its last line begins so."""

        def there() -> bool:
            screen = self.screen(whole=whole)
            return screen.rpartition("\n")[2].startswith(text) if last else text in screen

        self.until(there, f"`{text}`")

    def until(self, there: Callable[[], bool], what: str) -> None:
        """Poll, within bounds."""
        end = time.monotonic() + SECONDS
        while not there():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not come; the screen:\n{self.screen()}")
            time.sleep(0.03)

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self._run("send-keys", "-t", "chat", "-l", text)
        self._run("send-keys", "-t", "chat", "Enter")

    def press(self, key: str) -> None:
        """Press one key, by tmux's name."""
        self._run("send-keys", "-t", "chat", key)

    def ask(self, text: str) -> None:
        """Type a message or a slash command on a screen of its own, and wait for the prompt after
        it.
        """
        self.begin()
        self.type(text)
        self.settled(text)

    def settled(self, text: str) -> None:
        """Until the prompt is back below what was typed."""
        self.until(lambda: self._back(text), f"the prompt after `{text}`")

    def question(self, number: int = 1) -> None:
        """Until this many questions stand on the screen, the last unanswered."""

        def asked() -> bool:
            screen = self.screen()
            return screen.count(QUESTION) == number and QUESTION in screen.rstrip()[-12:]

        self.until(asked, f"question {number}")

    def _back(self, text: str) -> bool:
        lines = self.screen().split("\n")
        return (
            len(lines) > 1
            and lines[-1] == PROMPT
            and any(text[: self.columns - 4] in line for line in lines[:-1])
        )

    def _everything(self) -> list[str]:
        return self._run("capture-pane", "-p", "-t", "chat", "-S", "-").split("\n")

    def _run(self, *words: str) -> str:
        return subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, check=True, env=self._outside
        ).stdout


# ---- the hour


def play() -> Iterator[Hour]:
    """The whole hour; the folder is there until the generator is closed."""
    with _folder() as folder:
        hour = Hour(folder)
        stage = Stage(folder)
        try:
            _start(stage, folder, EVENING, "evening")
            _answers(stage, hour)
            _deny_and_cancel(stage, hour)
            _slash(stage, hour)
            session = _leave(stage)
            _start(stage, folder, MORNING, "morning", "--resume", session)
            _resumed(stage, hour)
            _leave(stage)
            _start(stage, folder, NOON, "noon")
            _next_session(stage, hour)
            _leave(stage)
            for width in WIDTHS:
                with _folder() as other:
                    tour = Hour(other)
                    _tour(stage, tour, width)
                    hour.screens |= neutral(tour.screens, other)
        finally:
            stage.end()
        yield hour


def _start(
    stage: Stage, folder: Path, script: list[dict[str, object]], name: str, *more: str
) -> None:
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(script), encoding="utf-8")
    ferrule = str(Path(sys.executable).with_name("ferrule"))
    stage.start(
        [ferrule, "chat", "-m", f"scripted:{file}", *more],
        _environment(folder),
        folder / "lighthouse",
    )
    stage.wait(PROMPT, last=True)


def _answers(stage: Stage, hour: Hour) -> None:
    supplies = hour.folder / "lighthouse/supplies.md"
    stage.type("We burned a barrel of oil last night.")
    stage.question()
    hour.before_write = supplies.read_text(encoding="utf-8")
    stage.type("1")
    stage.settled("We burned a barrel")
    hour.screens["once"] = stage.screen()
    stage.begin()
    stage.type("And one wick.")
    stage.question()
    stage.type("2")
    stage.settled("And one wick.")
    stage.type("And a loaf of bread.")
    stage.settled("One loaf.")
    hour.screens["session"] = stage.screen()
    stage.begin()
    stage.type("The horn sounded every two minutes.")
    stage.question()
    stage.type("3")
    stage.settled("The horn sounded")
    hour.screens["remember"] = stage.screen()


def _deny_and_cancel(stage: Stage, hour: Hour) -> None:
    stage.begin()
    stage.type("Tidy up.")
    stage.question()
    stage.type("keep the log")
    stage.settled("Tidy up.")
    hour.screens["deny"] = stage.screen()
    stage.begin()
    stage.type("Measure the wind.")
    stage.question()
    stage.type("1")
    measuring = hour.folder / "lighthouse/measuring"
    stage.until(measuring.exists, "the running command")
    stage.press("C-c")
    stage.question(2)
    stage.press("C-c")
    stage.wait("turn stopped")
    measuring.unlink()
    stage.settled("Measure the wind.")
    stage.type("Are you there?")
    stage.settled("I am still here.")
    hour.screens["cancel"] = stage.screen()


def _slash(stage: Stage, hour: Hour) -> None:
    stage.ask("/help")
    hour.screens["help"] = stage.screen()
    stage.ask("/read supplies.md")
    stage.type("/files")
    stage.settled("/files")
    stage.type("/search fog")
    stage.settled("/search fog")
    stage.type("/git status --short")
    stage.settled("/git status --short")
    hour.screens["slash"] = stage.screen()
    stage.ask("/tasks")
    for line in ("/mode", "/mode plan", "/sessions", "/raed log.md"):
        stage.type(line)
        stage.settled(line)
    hour.screens["session-commands"] = stage.screen()
    stage.ask("/tools")
    hour.screens["tools"] = stage.screen()


def _resumed(stage: Stage, hour: Hour) -> None:
    stage.type("And now?")
    stage.settled("And now?")
    hour.screens["resume"] = stage.screen()


def _next_session(stage: Stage, hour: Hour) -> None:
    stage.type("The bread is gone, and the horn was as always.")
    stage.question()
    stage.type("1")
    stage.settled("The bread is gone")
    hour.screens["next-session"] = stage.screen()


def _tour(stage: Stage, hour: Hour, width: int) -> None:
    """What a chat can do, on a terminal of this width."""
    stage.columns = width
    _start(stage, hour.folder, TOUR, f"tour{width}", "--max-turns", "2", "--mode", "acceptEdits")

    def take(name: str, *, whole: bool = False) -> None:
        hour.screens[f"{name}-{width}"] = stage.screen(whole=whole)

    def take_with_status(name: str) -> None:
        # The line below the input is drawn a moment after the input.
        stage.until(lambda: bool(STATUS.search(stage.screen(whole=True))), "the status line")
        take(name, whole=True)

    stage.ask("What is to be done?")
    take_with_status("markdown")
    stage.begin()
    stage.type("Measure the wind.")
    stage.question()
    stage.type("1")
    measuring = hour.folder / "lighthouse/measuring"
    stage.until(measuring.exists, "the running command")
    stage.wait("working")
    take("status", whole=True)
    stage.press("C-c")
    stage.settled("Measure the wind.")
    measuring.unlink()
    stage.begin()
    stage.write("One wick burned down.")
    stage.press("M-Enter")
    stage.write("Look at @supp")
    stage.wait("supplies.md")
    take_with_status("input")
    stage.press("Tab")
    stage.press("Enter")
    stage.settled("One wick")
    take("card")
    stage.begin()
    stage.type("Is all in order?")
    stage.wait("continue, with as much again?")
    stage.type("y")
    stage.settled("Both are in order.")
    take("limit")
    stage.begin()
    for line in ("/diff", "/cost", "/permissions", "/mcp"):
        stage.type(line)
        stage.settled(line)
    take("state")
    stage.begin()
    stage.type("/undo")
    stage.settled("undone: Go on")
    stage.type("/undo")
    stage.settled("undone: Is all in order?")
    stage.type("/undo")
    stage.wait("restore 1 file?")
    stage.type("y")
    stage.settled("undone: One wick")
    take("undo")
    stage.begin()
    stage.type("/retry How many wicks are there?")
    stage.settled("Twelve wicks, I would say.")
    take("retry")
    stage.begin()
    stage.type("/resume")
    stage.wait("Continue which conversation?")
    take("resume-list", whole=True)
    stage.press("Escape")
    stage.settled("/resume")
    stage.press("BTab")
    stage.wait("mode plan", whole=True)
    _leave(stage)


def _leave(stage: Stage) -> str:
    """Ctrl-D; the session's id, from the line that says how to come back."""
    stage.press("C-d")
    stage.wait("this session:")
    return re.findall(r"chat --resume ([0-9a-f]{12})", stage.screen())[-1]


# ---- the place


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder whose path has as many characters as HOME."""
    while True:
        folder = Path("/tmp") / f"{random.getrandbits(16):04x}"
        try:
            folder.mkdir(mode=0o700)
            break
        except FileExistsError:
            continue
    assert len(str(folder)) == len(HOME)
    try:
        _fill(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _fill(folder: Path) -> None:
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755 if name.endswith(".sh") else 0o644)
        os.utime(file, (1_767_600_000, 1_767_600_000))
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "log.md", "supplies.md", "wind.sh"],
        ["commit", "-q", "-m", "The lighthouse"],
    ):
        subprocess.run(
            ["git", *words], cwd=folder / "lighthouse", env=_environment(folder), check=True
        )


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LOGNAME": "ada",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "FERRULE_STATE": str(folder / "state"),
        "FERRULE_CONFIG": str(folder / "config"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": f"ada{'@example.org' if what == 'EMAIL' else ''}"
           for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip


# ---- the text


def neutral(screens: dict[str, str], folder: Path) -> dict[str, str]:
    """The screens without what differs from run to run: the folder, ids, times."""
    ids: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        spelled = ids.setdefault(
            match[0][:12], f"{0x51A7E0 + len(ids) * 0x1B3F5:06x}c0ffee0ff1ce5ea11ab1e{len(ids):05d}"
        )
        return spelled[: len(match[0])]

    def one(text: str) -> str:
        text = text.replace(str(folder), HOME)
        text = re.sub(r"\b[0-9a-f]{12}(?:[0-9a-f]{20})?\b", named, text)
        text = re.sub(r"\b\d+ ms\b", "2 ms", text)
        text = re.sub(r"\bworking · \d+ s\b", "working · 1 s", text)
        text = re.sub(r"\n{6,}(?=scripted:)", "\n\n\n", text)
        text = re.sub(r"\b\d+\.\d s\b", "0.1 s", text)
        text = re.sub(r"\b20\d\d-\d\d-\d\d([ T])\d\d:\d\d(:\d\d)?", r"2026-01-05\g<1>08:00\2", text)
        return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n") + "\n"

    return {name: one(text) for name, text in screens.items()}


def page(text: str, screens: dict[str, str]) -> str:
    """The page with the screens between their markers as they are now."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- screen: {match[1]} -->\n```text\n{screens[match[1]]}```\n<!-- end -->"

    return re.sub(r"<!-- screen: ([\w-]+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def main() -> None:
    for hour in play():
        screens = neutral(hour.screens, hour.folder)
    for old in HERE.glob("*.txt"):
        old.unlink()
    for name, text in screens.items():
        (HERE / f"{name}.txt").write_text(text, encoding="utf-8")
    if PAGE.exists():
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), screens), encoding="utf-8")
    print(f"{len(screens)} screens")


if __name__ == "__main__":
    main()
