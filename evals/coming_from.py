"""Run the programs for other libraries that the pages in `docs/from` show: `make lab NAME=coming-from`.

Each block `python theirs NAME==VERSION …` runs in an environment of its own with these versions,
each `theirs` block behind it in the same one, and asks a model server on this machine. What it
prints is compared with what the page says that it prints. Names of libraries as arguments run only
these. Environments go to `$FERRULE_BENCH_ENVS`, or `<tmp>/ferrule-bench-envs`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "tests/repository", "benchmarks/peers")]

from envs import ENVS, make  # noqa: E402  a script of the standard library, not of a package
from model_double import ANSWER, serve_model  # noqa: E402
from test_documents import PAGES, Page  # noqa: E402

from ferrule.models.scripted import Step, calls  # noqa: E402

SECONDS = 120
QUIET = {
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Without these the libraries would reach for servers of their makers."""
LAST: dict[str, Step] = {"smolagents": calls(("final_answer", {"answer": ANSWER}))}
"""Libraries that end a run by a call."""


def programs_of(page: Page) -> dict[str, list[tuple[list[str], str]]]:
    """Return the blocks for other libraries on a page, by the first requirement before them."""
    found: dict[str, list[tuple[list[str], str]]] = {}
    name = ""
    for _, info, body in page.blocks:
        if "theirs" not in info:
            continue
        requirements = [word for word in info if "==" in word]
        if requirements:
            name = re.split(r"[\[=]", requirements[0])[0]
        found.setdefault(name, []).append((info, body))
    return found


def run_library(name: str, blocks: list[tuple[list[str], str]]) -> list[str]:
    """Run the blocks for a library. Return what each program printed."""
    said: list[str] = []
    with (
        tempfile.TemporaryDirectory() as made,
        serve_model(LAST.get(name), is_lenient=True) as (
            variables,
            _,
        ),
    ):
        folder = Path(made)
        programs = ENVS / f"from-{name}" / "bin"
        environment = {**variables, **QUIET, "HOME": made, "PATH": f"{programs}:/usr/bin:/bin"}
        for info, body in blocks:
            requires = [word for word in info if "==" in word]
            if requires:
                make(f"from-{name}", requires, False)
            files = [word.removeprefix("file=") for word in info if word.startswith("file=")]
            for file in files:
                (folder / file).write_text(body, encoding="utf-8")
            if info[0] == "python" and not files:
                (folder / "program.py").write_text(body, encoding="utf-8")
                program = [str(programs / "python"), "program.py"]
                said.append(run(program, environment, folder))
            for line in body.splitlines():
                if info[0] == "console" and line.startswith("$ "):
                    said.append(run(shlex.split(line[2:]), environment, folder))
    return said


def run(words: list[str], environment: dict[str, str], folder: Path) -> str:
    """Run a program and return what it printed, or how it failed."""
    ran = subprocess.run(
        words,
        env={**environment, "LANG": os.environ.get("LANG", "C.UTF-8")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return ran.stdout.strip() if ran.returncode == 0 else f"failed: {ran.stderr.strip()[-1000:]}"


def main() -> int:
    """Run the programs and print a line for each. Return 1 if one said something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", help="langchain, llm, …")
    names: list[str] = parser.parse_args().libraries
    wrong = 0
    for page in PAGES:
        for name, blocks in programs_of(page).items():
            if names and name not in names:
                continue
            for said in run_library(name, blocks):
                wrong += said != ANSWER
                sys.stdout.write(f"{name:20} {said}\n")
                sys.stdout.flush()
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
