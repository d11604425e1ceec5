"""Dependencies point down, and importing is free of side effects."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from source import LOCAL, MODULES, NAMES, PACKAGE, imports

LAYERS = [
    {"core"},
    {"tools"},
    {"permissions"},
    {"sandbox"},
    {"storage"},
    {"models"},
    {"engine"},
    {"toolkits", "extensions", "connectors", "evaluation", "job_engines", "ferrule_local"},
    {"runtime"},
    {"cli", "console", "servers", "adapters"},
]
"""Each knows only what stands before it. Siblings of one line do not know each other."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT_FILES = {
    "",
    "_version",
    "__main__",
    "command",
    "events",
    "hooks",
    "jobs",
    "notebook",
    "plugins",
    "replay",
    "web",
}
"""Modules beside the layers: what programs import. They may import anything, and no layer imports
them.
"""

HEAVY = {
    "pydantic": {
        "tools.pydantic_schemas",
        "engine.output",
        "connectors.mcp",
        "adapters.pydantic_ai",
        "adapters.langchain",
    },
    "pydantic_core": {"engine.output", "adapters.pydantic_ai", "servers.mcp"},
    "pydantic_ai": {"adapters.pydantic_ai"},
    "langchain_core": {"adapters.langchain"},
    "langgraph": {"adapters.langgraph_interrupts"},
    "agents": {"adapters.openai_agents"},
    "openai": {"adapters.openai"},
    "anthropic": {"adapters.anthropic"},
    "any_llm": {"models"},
    "botocore": {"models.bedrock"},
    "PIL": {"engine.session_media", "cli.chat.pictures"},
    "re2": {"tools.safe_patterns", "extensions.starlark.inside"},
    "pydantic_monty": {"toolkits.code_mode"},
    "httpx2": {"connectors.mcp"},
    "httpx": {"connectors.a2a"},
    "a2a": {"connectors.a2a", "servers"},
    "google": {"connectors.a2a", "servers"},
    "starlette": {"servers", "console", "runtime"},
    "uvicorn": {"runtime.http.server"},
    "h11": {"runtime.http.server", "connectors.mcp.oauth"},
    "jinja2": {"console"},
    "markupsafe": {"console"},
    "jwt": {"connectors.a2a"},
    "anyio": {"connectors.mcp", "servers.mcp"},
    "mcp": {"connectors.mcp", "servers.mcp"},
    "mcp_types": {"connectors.mcp", "servers.mcp"},
    "jsonschema_rs": {
        "tools.define",
        "models.openai",
        "models.tool_modes",
        "engine.output",
        "ferrule_local.small_models",
    },
    "starlark": {"extensions.starlark"},
    "jiter": {"models", "engine.output", "cli.tool_cards"},
    "yaml": {
        "storage",
        "extensions",
        "sandbox",
        "cli",
        "console",
        "models",
        "ferrule_local.small_models",
    },
    "tree_sitter": {"toolkits"},
    "tree_sitter_bash": {"toolkits"},
    "click": {"cli", "console", "servers", "runtime.shared_options", "runtime.lazy_group"},
    "rich": {"cli"},
    "markdown_it": {"cli.chat", "console.markdown"},
    "IPython": {"notebook"},
    "ipywidgets": {"notebook"},
    "pygments": {"cli.chat"},
    "prompt_toolkit": {"cli"},
    "cryptography": {"storage.audit.signing"},
    "xllamacpp": {"ferrule_local"},
    "psycopg": {
        "storage",
        "engine.distributed",
        "job_engines.procrastinate",
        "job_engines.database",
    },
    "procrastinate": {"job_engines.procrastinate"},
    "psycopg_pool": {"job_engines.database"},
    "asyncpg": {"job_engines.pgqueuer"},
    "pgqueuer": {"job_engines.pgqueuer"},
    "temporalio": {"job_engines.temporal"},
    "restate": {"job_engines.restate"},
    "hypercorn": {"job_engines.restate"},
    "croniter": {"engine.distributed.schedules"},
    "obstore": {"storage"},
    "opentelemetry": {
        "engine.telemetry.telemetry",
        "engine.telemetry.state",
        "engine.telemetry.plugin",
        "engine.distributed.figures",
    },
    "typing_extensions": {
        "tools.pydantic_schemas",
        "tools.context",
        "engine.type_variables",
        "engine.output.partial_conversion",
    },
    "model2vec": {"tools.search.embeddings"},
    "genai_prices": {"models.prices"},
}
"""Libraries beside the standard one, and the only modules (or packages) that may import them."""

EAGER = {"jiter"}
"""Small enough to be loaded with the module that uses it."""

EAGER_LAYERS = {"cli", "console", "servers", "runtime", "adapters", "job_engines"}
"""Layers whose modules are imported only where they are used."""

LIGHT = {
    "import ferrule": 40,
    "from ferrule import Limits, ToolResult, tool": 80,
}
"""Statements, and the modules that each may load at the most. 33 and 76 on Python 3.11; other
versions split theirs otherwise.
"""

FOR_A_RUN = (
    "from ferrule import Agent, tool",
    "from ferrule import Agent, Limits, OpenAIChat, TextDelta, tool",
)
"""Statements that may load what the first run needs, but none of the heavy libraries."""

WITH_THE_FIRST_RUN = {
    "asyncio",
    "sqlite3",
    "ssl",
    "socket",
    "subprocess",
    "logging",
    "pathlib",
    "uuid",
}
"""Of the standard library: large, and of no use to a program that only imports."""


def layer(name: str) -> str:
    """`core`, `tools`, ...; the empty text for the package's own root, and a package beside it."""
    parts = name.split(".")
    if parts[0] == LOCAL.name:
        return LOCAL.name
    return parts[1] if len(parts) > 1 else ""


def test_every_folder_of_the_package_has_a_place_in_the_order() -> None:
    folders = {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders <= RANK.keys() | {"testing"}


def test_no_import_points_up() -> None:
    wrong: list[str] = []
    for module in MODULES:
        own = layer(module.name)
        if own in ROOT_FILES or own == "testing":
            continue
        for line, target, _ in imports(module):
            if target.split(".")[0] not in ("ferrule", LOCAL.name):
                continue
            other = layer(target)
            if other in ROOT_FILES:
                if target != "ferrule._version":
                    wrong.append(f"{module.shown}:{line} imports the package's root")
            elif other == "testing":
                wrong.append(f"{module.shown}:{line} imports `testing`")
            elif other != own and RANK[other] >= RANK[own]:
                wrong.append(f"{module.shown}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_distribution_of_local_models() -> None:
    """Its manifest says what it brings."""
    wrong = [
        f"{module.shown}:{line} imports {target}"
        for module in MODULES
        if layer(module.name) != LOCAL.name
        for line, target, _ in imports(module)
        if layer(target) == LOCAL.name
    ]
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {
        # The names that a package loads on first use are no imports of the package.
        module.name: {
            target
            for _, target, eager in imports(module)
            if target in NAMES and (eager or not module.is_package)
        }
        - {module.name}
        for module in MODULES
        if module.name != "ferrule"
    }
    # A package's own __init__ is loaded before its modules and imports none of them back.
    edges = {
        name: targets - {"ferrule", name.rpartition(".")[0]} for name, targets in edges.items()
    }
    assert [" -> ".join(circle) for circle in _circles(edges)] == []


def _circles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> Iterator[list[str]]:
        if name in way:
            yield [*way[way.index(name) :], name]
        elif name not in done:
            for target in sorted(edges.get(name, ())):
                yield from visit(target, [*way, name])
            done.add(name)

    for name in sorted(edges):
        yield from visit(name, [])


def test_heavy_libraries_are_imported_at_their_places_only() -> None:
    wrong: list[str] = []
    for module in MODULES:
        for line, target, eager in imports(module):
            library = target.split(".")[0]
            if (
                library in ("ferrule", LOCAL.name)
                or library in sys.stdlib_module_names
                or layer(module.name) == "testing"
            ):
                continue
            place = module.name.removeprefix("ferrule.")
            allowed = HEAVY.get(library)
            if allowed is None:
                wrong.append(
                    f"{module.shown}:{line} imports {library}, which is not in the list of "
                    "this test"
                )
            elif not any(place == one or place.startswith(f"{one}.") for one in allowed):
                wrong.append(f"{module.shown}:{line} imports {library}")
            elif eager and library not in EAGER and layer(module.name) not in EAGER_LAYERS:
                wrong.append(
                    f"{module.shown}:{line} imports {library} when it is imported itself: do "
                    "it where it is used"
                )
    assert not wrong, "\n".join(wrong)


def test_core_does_no_input_or_output_and_knows_no_clock() -> None:
    banned = {
        "asyncio",
        "os",
        "pathlib",
        "random",
        "socket",
        "sqlite3",
        "subprocess",
        "threading",
        "time",
        "datetime",
    }
    wrong = [
        f"{module.shown}:{line} imports {target}"
        for module in MODULES
        if layer(module.name) == "core"
        for line, target, _ in imports(module)
        if target.split(".")[0] in banned or target.split(".")[0] in HEAVY
    ]
    assert not wrong, "\n".join(wrong)


PROBE = """
import sys
before = set(sys.modules)
{statement}
loaded = set(sys.modules) - before
heavy = loaded & {heavy}
assert not heavy, heavy
assert len(loaded) <= {most}, len(loaded)
"""


@pytest.mark.proves("import.light")
@pytest.mark.parametrize("statement", [*LIGHT, *FOR_A_RUN])
def test_importing_loads_little_prints_nothing_and_leaves_nothing_behind(
    statement: str, tmp_path: Path
) -> None:
    heavy = set(HEAVY) | WITH_THE_FIRST_RUN
    if statement in FOR_A_RUN:
        heavy = set(HEAVY) - {"jiter"}  # reads streamed answers
    program = PROBE.format(statement=statement, heavy=heavy, most=LIGHT.get(statement, 310))
    home = tmp_path / "home"
    home.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "VIRTUAL_ENV")
    }
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=home,
        env={**kept, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert list(home.iterdir()) == []


FRAMEWORKS = ("pydantic_ai", "langchain_core", "langgraph", "agents", "openai", "anthropic", "llm")


@pytest.mark.parametrize(
    ("module", "own"),
    [
        ("ferrule.adapters", ()),
        ("ferrule.adapters.openai", ("openai",)),
        ("ferrule.adapters.anthropic", ("anthropic",)),
        ("ferrule.adapters.llm", ()),
        ("ferrule.adapters.openai_agents", ("agents", "openai")),
    ],
)
def test_an_adapter_loads_no_framework_but_its_own(module: str, own: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*sorted(sys.modules.keys() & set({FRAMEWORKS})))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert tuple(ran.stdout.split()) == own


def test_every_module_of_the_adapters_stays_short() -> None:
    lines = {
        module.shown: len(module.text.splitlines())
        for module in MODULES
        if layer(module.name) == "adapters"
    }
    assert lines and {name: count for name, count in lines.items() if count >= 200} == {}
