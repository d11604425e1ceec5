"""A short program for each extra, run in an environment that has this extra alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

_RUN = """
from ferrule import Agent, Scripted, Storage, tool
from ferrule.testing import calls, says


@tool(side_effect="read")
def stock(article: str) -> int:
    "Pieces of an article."
    return 12


model = Scripted([calls(("stock", {"article": "bolt"})), says("There are 12.")])
run = Agent(model, [stock], storage=Storage(journal=":memory:")).run_sync("How many bolts?")
assert run.results[0].data == 12 and run.text == "There are 12."
"""
_PROGRAM = """
import subprocess, sys
from pathlib import Path
program = Path(sys.executable).with_name("ferrule")
done = subprocess.run([program, {words}], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
"""

SMOKE_TESTS: dict[str, str] = {
    "none": _RUN
    + "import subprocess, sys\n"
    + "from pathlib import Path\n"
    + "program = Path(sys.executable).with_name('ferrule')\n"
    + "done = subprocess.run([program, 'run', 'x'], capture_output=True, text=True)\n"
    + "assert done.returncode == 2 and 'ferrule[cli]' in done.stderr, done.stderr\n",
    "terminal": _PROGRAM.format(words='"tools", "list"'),
    "cli": _PROGRAM.format(words='"tools", "list"'),
    "local": (
        _RUN
        + "import xllamacpp\n"
        + "from ferrule.models.registry import create_model_client\n"
        + "assert create_model_client('local:smollm2').model == 'local:smollm2'\n"
        + "import ferrule_local.small_models.action_check\n"
    ),
    "files": (
        "import asyncio\n"
        "from ferrule.extensions.starlark.pool import WorkerPool\n"
        "from ferrule.extensions.starlark.script import Script\n"
        "async def main():\n"
        "    pool = WorkerPool()\n"
        "    try:\n"
        "        script = Script('def run(args):\\n    return args[0] + 1\\n', 'x', 1)\n"
        "        assert await pool.run(script, 'run', ([41],), pure=True) == 42\n"
        "    finally:\n"
        "        pool.close()\n"
        "asyncio.run(main())\n"
    ),
    "capture": _RUN + "import tree_sitter, tree_sitter_bash",
    "pgqueuer": _RUN + "import ferrule.job_engines.pgqueuer, pgqueuer",
    "temporal": _RUN + "import ferrule.job_engines.temporal, temporalio",
    "restate": _RUN + "import ferrule.job_engines.restate, restate",
    "vertex": _RUN + "import ferrule.models.google.client, google.auth",
    "bedrock": _RUN + "import ferrule.models.bedrock.client, botocore",
    "any": _RUN + "import ferrule.models.any_llm.client, any_llm",
    "code": _RUN + "from ferrule.toolkits import code_tool; code_tool([stock])",
    "mcp": _RUN + "import ferrule.connectors.mcp, ferrule.servers.mcp.server",
    "a2a": _RUN + "import ferrule.connectors.a2a, a2a",
    "a2a-server": _RUN + "import ferrule.servers.a2a.server",
    "serve": (
        _RUN + "from ferrule.web import create_ag_ui_endpoint, Principal\n"
        "agent = Agent(Scripted([]), [stock])\n"
        "create_ag_ui_endpoint(agent, address='http://x.example', identify=lambda r: None)\n"
    ),
    "index": "import tree_sitter_python, tree_sitter_lua, ferrule.toolkits.code_index",
    "console": _RUN + "import ferrule.console.app",
    "pictures": "import PIL, ferrule.engine.session_media",
    "embeddings": "import model2vec",
    "objects": "from ferrule.storage import ObjectArtifactStore; import obstore",
    "otel": "import ferrule.engine.telemetry, opentelemetry.sdk",
    "prices": (
        "from ferrule.models.prices import find_price\n"
        "assert find_price('openai:gpt-4o') is not None\n"
    ),
    "scale": "from ferrule.storage import PostgresJournal; import psycopg, procrastinate",
    "sign": "import cryptography; from ferrule.storage.audit import signing",
    "bubblewrap": _PROGRAM.format(words='"--version"'),
}
"""By the name of the extra; `none` is an installation without extras."""
_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
_IN_ALL = _PROJECT["project"]["optional-dependencies"]["all"][0].partition("[")[2].rstrip("]")
SMOKE_TESTS["all"] = "\n".join(SMOKE_TESTS[name] for name in _IN_ALL.split(","))
