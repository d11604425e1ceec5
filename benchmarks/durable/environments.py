#!/usr/bin/env python3
"""Makes the environments of durable runs and MCP servers, as `../peers/envs.py` does for its own.

    python3 environments.py [NAME ...]
    python3 environments.py --run NAME PROGRAM [ARGUMENT ...]

Ferrule runs in the environment of this repository (`make venv`); `BENCH_PYTHON_FERRULE` names
another interpreter.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))
from envs import ENVS, make  # noqa: E402  (of the peers)

OURS = HERE.parents[1] / ".venv" / "bin" / "python"
PG = ["psycopg[binary,pool]"]
REQUIRES = {
    "stub": ["uvloop", "httptools", *PG],
    "bare": ["httpx", *PG],
    "dbos": ["pydantic-ai-slim[openai,dbos]", *PG],
    "langgraph": [
        "langgraph",
        "langchain",
        "langchain-openai",
        "langgraph-checkpoint-postgres",
        *PG,
    ],
    "openai_agents": ["openai-agents[sqlalchemy]", *PG],
    "mcp": ["mcp", "fastmcp", "uvicorn"],
}
SYSTEMS = {
    "bare": {"envs": "bare"},
    "ferrule_memory": {
        "envs": "ferrule",
        "module": "ferrule_one",
        "env": {"BENCH_JOURNAL": "memory"},
    },
    "ferrule_sqlite": {
        "envs": "ferrule",
        "module": "ferrule_one",
        "env": {"BENCH_JOURNAL": "sqlite"},
    },
    "ferrule_sqlite_power": {
        "envs": "ferrule",
        "module": "ferrule_one",
        "env": {"BENCH_JOURNAL": "power"},
    },
    "ferrule_pg": {"envs": "ferrule", "module": "ferrule_one", "env": {"BENCH_JOURNAL": "pg"}},
    "ferrule_other": {
        "envs": "ferrule",
        "module": "ferrule_one",
    },  # BENCH_JOURNAL=module:function, a journal to try out
    "ferrule_worker1": {
        "envs": "ferrule",
        "module": "ferrule_workers",
        "env": {"BENCH_WORKERS": "1"},
    },
    "ferrule_worker2": {
        "envs": "ferrule",
        "module": "ferrule_workers",
        "env": {"BENCH_WORKERS": "2"},
    },
    "pydantic_ai_dbos": {"envs": "dbos"},
    "pydantic_ai_dbos_models": {
        "envs": "dbos",
        "module": "pydantic_ai_dbos",
        "env": {"BENCH_TOOL_STEP": "0"},
    },
    "pydantic_ai_plain": {
        "envs": "dbos",
        "module": "pydantic_ai_dbos",
        "env": {"BENCH_PLAIN": "1"},
    },
    "langgraph_pg": {"envs": "langgraph"},
    "langgraph_pg_sync": {
        "envs": "langgraph",
        "module": "langgraph_pg",
        "env": {"BENCH_DURABILITY": "sync"},
    },
    "openai_agents_pg": {"envs": "openai_agents"},
}


def python(name):
    """The interpreter of an environment."""
    if name == "ferrule":
        return os.environ.get("BENCH_PYTHON_FERRULE") or OURS
    return ENVS / f"durable-{name}" / "bin" / "python"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        program = python(sys.argv[2])
        os.execv(program, [program, HERE / sys.argv[3], *sys.argv[4:]])
    ENVS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or REQUIRES:
        print(name, make(f"durable-{name}", REQUIRES[name], False), flush=True)
