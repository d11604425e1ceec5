"""The files of a plugin as a distribution of its own, for `ferrule init --plugin NAME`."""

from __future__ import annotations

import re

from ferrule.core.errors import ConfigError
from ferrule.storage.plugins.installed import RESERVED
from ferrule.storage.plugins.manifests import read_shipped_manifests

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "ferrule-{dashed}"
version = "0.1.0"
description = "A plugin for Ferrule."
requires-python = ">=3.11"
dependencies = ["ferrule"]

[project.optional-dependencies]
test = ["pytest", "ferrule[console]"]

[project.entry-points."ferrule.plugins"]
{name} = "ferrule_{name}:{title}"

[tool.hatch.build.targets.wheel]
packages = ["ferrule_{name}"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

_CODE = '''\
"""A plugin for Ferrule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ferrule import tool
from ferrule.hooks import Action, ToolPre, block, hook
from ferrule.plugins import Parts, Setup


@dataclass(frozen=True)
class {title}:
    """What `{name}` adds to an agent. Its fields are settings."""

    name: ClassVar[str] = "{name}"
    greeting: str = "Hello"

    def setup(self, setup: Setup) -> Parts:
        """Return a tool, and a hook on its calls."""

        @tool(side_effect="none")
        def {name}_greet(who: str) -> str:
            """Greet somebody.

            Args:
                who: The name to greet.
            """
            return f"{{self.greeting}}, {{who}}!"

        tools = [{name}_greet]

        @hook("tool.pre", tools=tools)
        def require_name(call: ToolPre) -> Action | None:
            return None if str(call.arguments["who"]).strip() else block("give a name")

        return Parts(tools=tools, hooks=[require_name])
'''

_PAGE = '''\
"""The page of the console. The title above it is that of the manifest."""

from __future__ import annotations

from ferrule.plugins import ConsolePage


def show(page: ConsolePage) -> str:
    """Show who is looking."""
    return page.render("<p>Hello, {{{{ user }}}}!</p>", user=page.user)
'''

_MANIFEST = """\
help = "What `{name}` adds to an agent."
optional = ["{name}_greet"]
needs = {{ restricts = true }}  # its hook refuses calls

[settings.greeting]
kind = "text"
default = "Hello"
short = "The first word of a greeting."

[pages.{name}]
object = "ferrule_{name}.page:show"
title = "{title}"
"""

_TEST = """\
from ferrule.testing import call_plugin, check_plugin, render_page
from ferrule_{name} import {title}
from ferrule_{name}.page import show


def test_it_keeps_the_rules_of_plugins_and_its_manifest():
    check_plugin({title}())


def test_the_tool_uses_the_field(tmp_path):
    result = call_plugin({title}(greeting="Hi"), "{name}_greet", state=tmp_path, who="Ada")
    assert result.data == "Hi, Ada!"


def test_the_hook_refuses_a_call_without_a_name(tmp_path):
    result = call_plugin({title}(), "{name}_greet", state=tmp_path, who=" ")
    assert "give a name" in result.error_message


def test_the_page_greets_who_looks(tmp_path):
    assert render_page(show, state=tmp_path) == "<p>Hello, owner!</p>"
"""

_IGNORED = """\
__pycache__/
*.egg-info/
.pytest_cache/
.venv/
build/
dist/
"""

_README = """\
# ferrule-{dashed}

A plugin for Ferrule.

    pip install -e ".[test]"
    python -m pytest
    ferrule plugins

In Ferrule's settings `plugins: {{{name}: {{greeting: Hi}}}}` sets its field, and
`plugins: {{{name}: false}}` switches it off.
"""


def plugin_files(name: str) -> dict[str, str]:
    """Return the files of a new plugin, by path.

    Raises:
        ConfigError: The name cannot be that of a plugin.
    """
    if not _NAME.fullmatch(name) or name in (*RESERVED, *read_shipped_manifests()):
        raise ConfigError(
            f"`{name}` cannot be the name of a plugin",
            hint="use small letters, digits and `_`, and no name that `ferrule plugins` lists",
        )
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "title": name.title().replace("_", ""),
    }
    return {
        "pyproject.toml": _PYPROJECT.format(**words),
        ".gitignore": _IGNORED,
        f"ferrule_{name}/__init__.py": _CODE.format(**words),
        f"ferrule_{name}/page.py": _PAGE.format(**words),
        f"ferrule_{name}/ferrule-plugin.toml": _MANIFEST.format(**words),
        f"tests/test_{name}.py": _TEST.format(**words),
        "README.md": _README.format(**words),
    }
