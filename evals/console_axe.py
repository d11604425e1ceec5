"""Have axe look at every page of the console in Chromium: `make lab NAME=axe`.

    make lab NAME=axe ARGS="--pictures FOLDER"    # each look as a picture, too
    make lab NAME=axe ARGS="--write"              # the pictures that the documentation shows

A folder with a tool file, an MCP server that nobody approved and a few runs is made: Markdown, a
table, code, a picture, a diff, a large output, a refused call, a failure and a call that waits for
an answer. Every page of the menu and every kind of page behind one is opened at the width of a
desk and of a telephone, light and dark. axe-core is installed from npm into an environment of its
own, below `$FERRULE_BENCH_ENVS`, or `<tmp>/ferrule-bench-envs`. Exit code 1: there are findings.
"""

from __future__ import annotations

import argparse
import base64
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

PACKAGE = "axe-core@4.11.0"
ENVS = Path(
    os.environ.get("FERRULE_BENCH_ENVS", Path(tempfile.gettempdir()) / "ferrule-bench-envs")
)
FOLDER = ENVS / "axe"
AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
TOKEN = "the-token-of-whoever-sits-here"
SECONDS = 60
SIZES = {"desk": (1400, 900), "telephone": (390, 844)}
SCHEMES = ("light", "dark")
MOST_PAGES = 60
SCREENS = Path(__file__).parents[1] / "docs" / "screens"
SHOWN = {"/playground": "playground", "/runs": "runs", "/tools/tool?name=write_file": "tool"}
"""Pages of which the documentation has a picture, beside the run that waits (`approval`)."""
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCRIPTS = {
    "words": """\
- reasoning: "The person wants an overview."
  say: "# Overview\\n\\n| name | port |\\n|---|---|\\n| lamp | 8080 |\\n\\n```python\\nprint(1)\\n```\\n\\n- one\\n- [a link](https://example.org)\\n\\n> said\\n"
""",
    "edit": """\
- {say: "I change it.", call: [{tool: edit_file, arguments: {path: note.txt, old_string: one, new_string: two}, id: c1}]}
- {call: [{tool: read_file, arguments: {path: long.txt}, id: c2}, {tool: read_file, arguments: {path: missing.txt}, id: c3}]}
- {call: [{tool: run_command, arguments: {command: rm note.txt}, id: c4}]}
- {say: "Done."}
""",
    "wait": """\
- {call: [{tool: write_file, arguments: {path: new.txt, content: "one\\ntwo\\n"}, id: c1}]}
- {say: "Written."}
""",
}
TOOL_FILE = """\
---
parameters:
  text: {type: string, description: What is counted., required: true}
side_effect: none
script: |
  def run(args):
      return str(len(args["text"]))
---
Count the characters of a text.
"""


def print_line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def install() -> None:
    """Install axe-core, if it is not there."""
    if AXE.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n')
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("there is no `npm` here: it comes with Node")
    subprocess.run([npm, "install", "--silent", "--no-audit", PACKAGE], cwd=FOLDER, check=True)


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a person whose home this is."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FERRULE")}
    own = {name: text for name, text in kept.items() if not name.startswith("XDG")}
    return {**own, "HOME": str(home), "LOGNAME": "ada", "FERRULE_TOKEN": TOKEN}


def ferrule(*words: str) -> list[str]:
    """Return the command line of a call of Ferrule."""
    return [sys.executable, "-c", "from ferrule.cli.entry import main; main()", *words]


def furnish(home: Path) -> Path:
    """Make the folder and the runs that the pages show. Return the folder."""
    work = home / "lighthouse"
    (work / ".ferrule" / "tools").mkdir(parents=True)
    (work / ".ferrule" / "tools" / "count_characters.md").write_text(TOOL_FILE)
    (work / "note.txt").write_text("one\n")
    (work / "long.txt").write_text("a line of the long file\n" * 20_000)
    (work / "lamp.png").write_bytes(PICTURE)
    (work / ".mcp.json").write_text('{"mcpServers": {"clock": {"command": "clock-server"}}}')
    for name, text in SCRIPTS.items():
        (home / f"{name}.yaml").write_text(text)
    allowed = ("--allow", "Read(**)", "--allow", "Edit(note.txt)", "--deny", "Bash(rm:*)")
    for words in (
        ("trust", "--yes"),
        ("run", "-m", f"scripted:{home / 'words.yaml'}", "-a", "lamp.png", "Give an overview."),
        ("run", "-m", f"scripted:{home / 'edit.yaml'}", *allowed, "Change the note."),
    ):
        subprocess.run(
            ferrule(*words),
            cwd=work,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,  # what a run is refused is what the pages are to show
        )
    return work


@contextmanager
def serve(home: Path, work: Path) -> Iterator[str]:
    """Serve the console of a folder. Yields its address."""
    process = subprocess.Popen(
        ferrule("serve", "console", "--port", "0", "-m", f"scripted:{home / 'wait.yaml'}"),
        cwd=work,
        env=environment(home),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)


def leave_question(page: Any, address: str) -> None:
    """Start a run whose call waits for a person."""
    page.goto(f"{address}/playground")
    page.get_by_label("Message", exact=True).fill("Write the file.")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/runs/*")
    page.locator("form", has=page.get_by_label("Reason")).first.wait_for()


def find_pages(page: Any, address: str) -> list[str]:
    """Return one address for every kind of page, and those of all runs, by following links."""
    found: dict[str, str] = {}
    todo = [f"{address}/runs"]
    seen = set(todo)
    while todo and len(found) < MOST_PAGES:
        at = todo.pop(0)
        answered = page.goto(at)
        if answered is None or "text/html" not in answered.headers.get("content-type", ""):
            continue
        found.setdefault(_kind_of(at, address), at)
        hrefs = page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
        for href in hrefs:
            target = href.partition("#")[0]
            is_new = target.startswith(address) and target not in seen
            if is_new and not re.search("logout|/file|/image|export", target):
                seen.add(target)
                if _kind_of(target, address) not in found:
                    todo.append(target)
    return [*found.values(), f"{address}/nothing-here"]


def _kind_of(target: str, address: str) -> str:
    path, _, query = target.removeprefix(address).partition("?")
    if path.startswith("/runs/"):
        return path
    names = sorted(part.partition("=")[0] for part in query.split("&") if part)
    return f"{path}?{'&'.join(names)}"


def look(page: Any, target: str) -> list[str]:
    """Open a page and return what axe finds, a line for each rule."""
    page.goto(target)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:160]}"
        for one in result["violations"]
    ]


def take_picture(page: Any, target: str, file: Path) -> None:
    """Write a picture of the open page, all of its height."""
    page.goto(target)
    page.wait_for_timeout(300)  # streamed parts and charts settle
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(file), full_page=True)


def main() -> int:
    """Look at everything, and print a table and the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each look")
    parser.add_argument("--write", action="store_true", help="draw those of the documentation")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("there is no Chromium here")
    install()
    findings = 0
    looks = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        work = furnish(home)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with serve(home, work) as address:
            context = browser.new_context(bypass_csp=True)
            page = context.new_page()
            looks, findings = 1, _print_findings("/login", look(page, f"{address}/login"))
            page.goto(f"{address}/login?token={TOKEN}")
            leave_question(page, address)
            waiting = page.url
            if options.write:
                page.set_viewport_size({"width": SIZES["desk"][0], "height": SIZES["desk"][1]})
                take_picture(page, waiting, SCREENS / "console-approval.png")
                for path, name in SHOWN.items():
                    take_picture(page, f"{address}{path}", SCREENS / f"console-{name}.png")
                return 0
            targets = find_pages(page, address)
            for size, (width, height) in SIZES.items():
                page.set_viewport_size({"width": width, "height": height})
                for scheme in SCHEMES:
                    page.emulate_media(color_scheme=scheme)
                    for target in targets:
                        looks += 1
                        name = f"{target.removeprefix(address)}, {size}, {scheme}"
                        findings += _print_findings(name, look(page, target))
                        if options.pictures is not None:
                            slug = re.sub(r"\W+", "-", name.replace(" ", "")).strip("-")
                            take_picture(page, target, options.pictures / f"{slug}.png")
            browser.close()
    for target in targets:
        print_line(f"  {re.sub('[0-9a-f]{32}', 'SESSION', target.removeprefix(address))}")
    print_line(f"{looks} looks at {len(targets) + 1} pages with {PACKAGE}: {findings} findings")
    return 1 if findings else 0


def _print_findings(name: str, lines: list[str]) -> int:
    for line in lines:
        print_line(f"✗ {name}: {line}")
    return len(lines)


if __name__ == "__main__":
    sys.exit(main())
