"""Makes `docs/screens/first-run.svg`, the terminal that the README shows: real commands, and the
embedded model.

    python docs/screens/make_recording.py

Each command runs in a terminal of its own in a folder with three files, and what it prints is drawn
as it is; only ids and the day are left as they came. The model must be there
(`ferrule models pull smollm2`).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from io import StringIO
from pathlib import Path

import pexpect
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).with_name("first-run.svg")
COLUMNS = 114
LINES = 60
SECONDS = 120
TITLE = "ferrule, with a model of 135 million parameters on this machine"
FILES = {
    "config.yaml": "name: lighthouse\nport: 8080\nkeeper: Ines\n",
    "README.md": "# Lighthouse\n\nKeeps the lamp burning and the log written.\n",
    ".env": "API_TOKEN=3f9a1c\n",
}
SETTINGS = "model: local:smollm2\ntools:\n  allowed: [read_file]\n"
"""So small a model gets one tool; with more of them it has to choose, and does so badly."""
COMMANDS = {
    "ferrule run --allow 'Read(**)' \"What is the port in config.yaml?\"": 0,
    "ferrule run --allow 'Read(**)' \"Show me .env\"": 4,
    "ferrule sessions list": 0,
}
"""Command to the exit code that it ends with."""
THEME = TerminalTheme(
    (29, 33, 40),
    (208, 213, 220),
    [
        (29, 33, 40),
        (232, 118, 118),
        (140, 198, 130),
        (226, 192, 110),
        (110, 168, 232),
        (198, 146, 220),
        (98, 200, 205),
        (208, 213, 220),
    ],
)
FORMAT = (
    """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>{{title}}</title>
<style>
.{unique_id}-matrix {{{{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}}}
.{unique_id}-title {{{{ font-size: 16px; font-family: system-ui, sans-serif; }}}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("{{{{", "{{")
    .replace("}}}}", "}}")
    .replace("{{title}}", TITLE)
)
"""As rich's own, but with fonts that every machine has: a picture loads nothing from elsewhere."""


def prepare(folder: Path) -> dict[str, str]:
    """Make the folder to work in, and return the environment of the commands."""
    work = folder / "lighthouse"
    settings = folder / "settings"
    work.mkdir()
    settings.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text, encoding="utf-8")
    (settings / "ferrule.yaml").write_text(SETTINGS, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "FERRULE_STATE": str(folder / "state"),
        "FERRULE_CONFIG": str(settings),
    }


def record(folder: Path) -> Text:
    """Run the commands and return what the terminal showed.

    Raises:
        RuntimeError: One ended in another way than it should.
    """
    environment = prepare(folder)
    seen = Text()
    for command, status in COMMANDS.items():
        program, *arguments = shlex.split(command)
        terminal = pexpect.spawn(
            program,
            arguments,
            env=environment,
            cwd=str(folder / "lighthouse"),
            dimensions=(LINES, COLUMNS),
            encoding="utf-8",
            timeout=SECONDS,
        )
        terminal.expect(pexpect.EOF)
        terminal.close()
        shown = str(terminal.before).replace("\r\n", "\n").strip("\n")
        if terminal.exitstatus != status:
            raise RuntimeError(f"{command} ended with {terminal.exitstatus}\n{shown}")
        if seen:
            seen.append("\n")
        seen.append("$ ", style="bold green").append(command, style="bold").append("\n")
        seen.append(Text.from_ansi(re.sub(r"\n{2,}", "\n", shown))).append("\n")
    return seen


def draw(seen: Text) -> str:
    """Draw a terminal as a picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(seen, soft_wrap=False)
    return console.export_svg(title=TITLE, theme=THEME, code_format=FORMAT, unique_id="first-run")


def main() -> None:
    """Record, draw and write the picture."""
    with tempfile.TemporaryDirectory(prefix="ferrule-recording-") as made:
        picture = draw(record(Path(made)))
    lines = [line.rstrip() for line in picture.splitlines()]
    PICTURE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
