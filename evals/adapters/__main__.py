"""Make the environments and run in each what is for it: `make lab NAME=adapters`.

Names of environments as arguments run only these. Environments go to `$FERRULE_BENCH_ENVS`, or
`<tmp>/ferrule-bench-envs`; they are made once, and have this checkout of Ferrule.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "benchmarks/peers"))

from envs import make, python  # noqa: E402  a script of the standard library, not of a package

SECONDS = 600
TESTING = ("pytest==9.2.0", "pytest-asyncio==1.5.0", "hypothesis==6.170.15")
QUIET = {
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYDANTIC_AI_NO_UPDATE_CHECK": "1",
}
"""Without these the libraries would reach for servers of their makers."""


class Environment(NamedTuple):
    """What is installed for a framework, and what runs there: tests and programs."""

    requires: tuple[str, ...]
    tests: str
    program: str = ""


ENVIRONMENTS = {
    "pydantic-ai": Environment(("pydantic-ai-slim==2.68.0",), "test_pydantic_ai.py"),
    "langchain": Environment(
        ("langchain==1.5.2", "langgraph==1.2.24", "langchain-community==0.4.2"),
        "test_langchain.py",
        "community_tools.py",
    ),
    "openai-agents": Environment(("openai-agents==0.24.0",), "test_openai_agents.py"),
    "sdks": Environment(("openai==3.57.0", "anthropic==2.12.0"), "test_sdk_loops.py"),
    "llm": Environment(
        (
            "llm==0.36",
            "llm-tools-simpleeval==0.1.1",
            "llm-tools-sqlite==0.1",
            "llm-tools-todo==0.3",
            "llm-tools-patch==0.3",
            "llm-tools-quickjs==0.1",
            "llm-tools-readonly-fs==0.1.0",
        ),
        "test_llm.py",
        "plugin_tools.py",
    ),
}


def run_environment(name: str, fresh: bool) -> bool:
    """Make an environment and run what is for it. Return whether all of it came out."""
    environment = ENVIRONMENTS[name]
    own = f"adapters-{name}"
    made = make(own, [*environment.requires, *TESTING, "--editable", str(ROOT)], fresh)
    sys.stdout.write(f"== {name}: {', '.join(environment.requires)} ({made})\n")
    sys.stdout.flush()
    program = str(python(own))
    tests = [
        program,
        *("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"),
        # Warnings of libraries that nobody here pinned together are no findings.
        *("-o", "filterwarnings=default", "--disable-warnings"),
        f"tests/adapters/{environment.tests}",
    ]
    commands = [tests]
    if environment.program:
        commands.append([program, str(HERE / environment.program)])
    with tempfile.TemporaryDirectory() as home:
        variables = {**os.environ, **QUIET, "HOME": home, "LLM_USER_PATH": home}
        results = [_run(command, variables) for command in commands]
    return all(results)


def _run(command: list[str], variables: dict[str, str]) -> bool:
    begin = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, env=variables, timeout=SECONDS, check=False)
    sys.stdout.write(f"   exit {ran.returncode}, {time.monotonic() - begin:.1f} s\n")
    sys.stdout.flush()
    return ran.returncode == 0


def main() -> int:
    """Run the named environments, or all. Return 1 if something did not come out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--fresh", action="store_true", help="make the environments anew")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"there is no `{unknown[0]}`; there are: {', '.join(ENVIRONMENTS)}")
    results = [run_environment(name, given.fresh) for name in given.names or ENVIRONMENTS]
    return int(not all(results))


if __name__ == "__main__":
    raise SystemExit(main())
