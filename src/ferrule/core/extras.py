"""Extras: which extra brings which optional library, and the error where one is missing."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from .errors import ConfigError

EXTRAS: Final = {
    "a2a": "a2a",
    "any_llm": "any",
    "asyncpg": "pgqueuer",
    "botocore": "bedrock",
    "click": "cli",
    "cryptography": "sign",
    "ferrule.cli": "cli",
    "ferrule.console": "console",
    "ferrule.runtime.http": "serve",
    "ferrule.servers": "serve",
    "ferrule_local": "local",
    "genai_prices": "prices",
    "google.auth": "vertex",
    "h11": "serve",
    "hypercorn": "restate",
    "jinja2": "console",
    "markdown_it": "console",
    "markupsafe": "console",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "model2vec": "embeddings",
    "obstore": "objects",
    "opentelemetry": "otel",
    "pgqueuer": "pgqueuer",
    "PIL": "pictures",
    "procrastinate": "scale",
    "prompt_toolkit": "cli",
    "psycopg": "scale",
    "psycopg_pool": "scale",
    "pydantic_monty": "code",
    "pygments": "cli",
    "python_multipart": "console",
    "restate": "restate",
    "rich": "cli",
    "starlark": "files",
    "starlette": "serve",
    "temporalio": "temporal",
    "tree_sitter": "capture",
    "tree_sitter_bash": "capture",
    "uvicorn": "serve",
    "xllamacpp": "local",
    "yaml": "files",
}
"""The extra of each optional library, by the name it is imported by.

Those of `ferrule` itself are in the distribution `ferrule-interfaces`.
"""

FRAMEWORKS: Final = {
    "agents": "openai-agents",
    "anthropic": "anthropic",
    "langchain_core": "langgraph",
    "langgraph": "langgraph",
    "llm": "llm",
    "openai": "openai",
    "pydantic_ai": "pydantic-ai-slim",
    "pytest": "pytest",
}
"""What is installed for libraries of no extra: frameworks that programs bring themselves."""

EXTRA_PROVIDERS: Final = {"local": "ferrule_local"}
"""Providers of models that another distribution of ours brings, and its package."""


class ExtraMissing(ConfigError):
    """A library of an extra is not installed. The hint is the line that installs it."""

    code = "extra_missing"


def describe_missing(error: BaseException) -> ExtraMissing | None:
    """Return what a failed import means if its library belongs to an extra; else None.

    A library that is there, and lacks what is imported, is one of another version, or a part of it
    failed: then the error is told as it is.
    """
    if not isinstance(error, ImportError) or not error.name:
        return None
    parts = error.name.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    module = next((name for name in names if name in EXTRAS or name in FRAMEWORKS), None)
    if module is None:
        return None
    missing = build_missing_error(module)
    if _is_installed(module):
        detail = f"the library `{module}` is installed, but cannot be used: {error}"
        return missing.reword(detail, missing.hint)
    return missing


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        # A package above it is missing, or was put into `sys.modules` without a spec.
        return module in sys.modules


def build_missing_error(module: str, extra: str = "") -> ExtraMissing:
    """Return the error for a library that is not installed, by the name it is imported by."""
    extra = extra or EXTRAS.get(module, "")
    packages = f"'ferrule[{extra}]'" if extra else FRAMEWORKS[module]
    return ExtraMissing(
        f"this needs the library `{module}`, which is not installed",
        hint=f"pip install {packages}",
    )


@contextmanager
def name_missing_extra() -> Generator[None]:
    """Raise ExtraMissing for an import in the block that fails because an extra is missing."""
    try:
        yield
    except ImportError as error:
        missing = describe_missing(error)
        if missing is None:
            raise
        raise missing from error


def require(*modules: str, extra: str = "") -> None:
    """Raise ExtraMissing if a library is not installed. Nothing is imported."""
    for module in modules:
        if not _is_installed(module):
            raise build_missing_error(module, extra)
