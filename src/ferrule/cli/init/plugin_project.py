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

[project.entry-points."ferrule.plugins"]
{name} = "ferrule_{name}:{title}"

[tool.hatch.build.targets.wheel]
packages = ["ferrule_{name}"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

_CODE = '''\
"""A plugin for Ferrule: notes that are kept for later sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ferrule import tool
from ferrule.plugins import Parts, Setup


@dataclass(frozen=True)
class {title}:
    """Keep notes, and read them in later sessions."""

    name: ClassVar[str] = "{name}"
    most: int = 100

    def setup(self, setup: Setup) -> Parts:
        """Return two tools."""
        file = setup.state() / "notes.txt"

        def read() -> list[str]:
            return file.read_text("utf-8").splitlines() if file.exists() else []

        @tool(side_effect="write", parallel=False)
        def {name}_keep(text: str) -> str:
            """Keep a note of one line for later sessions."""
            notes = [*read(), " ".join(text.split())][-self.most :]
            file.write_text("\\n".join(notes) + "\\n", "utf-8")
            return "kept"

        @tool(side_effect="read")
        def {name}_list() -> list[str]:
            """List the notes that were kept."""
            return read()

        return Parts(tools=[{name}_keep, {name}_list])
'''

_MANIFEST = """\
help = "Notes that are kept for later sessions."
optional = ["{name}_keep", "{name}_list"]

[settings.most]
kind = "integer"
default = 100
minimum = 1
short = "Most notes that are kept."
"""

_TEST = """\
from ferrule.testing import call_plugin, check_plugin
from ferrule_{name} import {title}


def test_a_note_is_there_in_the_next_session(tmp_path):
    check_plugin({title}())
    assert call_plugin({title}(), "{name}_keep", state=tmp_path, text="The key is blue.").success
    listed = call_plugin({title}(), "{name}_list", state=tmp_path)
    assert listed.data == ["The key is blue."]
"""

_README = """\
# ferrule-{dashed}

A plugin for Ferrule.

    pip install -e .
    python -m pytest
    ferrule plugins

In Ferrule's settings `plugins: {{{name}: {{most: 10}}}}` sets its field, and
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
        f"ferrule_{name}/__init__.py": _CODE.format(**words),
        f"ferrule_{name}/ferrule-plugin.toml": _MANIFEST.format(**words),
        f"tests/test_{name}.py": _TEST.format(**words),
        "README.md": _README.format(**words),
    }
