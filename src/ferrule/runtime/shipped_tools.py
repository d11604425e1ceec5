"""Which of the tools that ship a model gets, and in what shapes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.artifacts import tools as artifact_tools
from ferrule.extensions.skills.tool import NAME
from ferrule.storage import paths
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.plugins.manifests import read_shipped_manifests
from ferrule.tools.definition import Loading, Tool

from .deferred_tools import FINDERS


def list_coding_tools() -> frozenset[str]:
    """Return the tools of the profile `coding`: one per job."""
    manifests = read_shipped_manifests().values()
    return frozenset(chain.from_iterable(one.coding for one in manifests))


def list_default_names() -> tuple[str, ...]:
    """Return the names of the tools of plugins that are on by default."""
    manifests = read_shipped_manifests().values()
    return tuple(chain.from_iterable((*one.coding, *one.all) for one in manifests))


def list_known_names() -> tuple[str, ...]:
    """Return the names of tools that a run may have, whatever this one has."""
    manifests = (*read_shipped_manifests().values(), *find_installed_manifests().values())
    return (*chain.from_iterable(one.tools for one in manifests), *names_added_by_runs())


def choose_profile(chosen: str | None, model: str) -> str:
    """Return the profile of a run: the one that the settings name, or the default of the model.

    The embedded models are led from tool to tool and never read the descriptions of all; they do
    better with a tool of its own for each thing.
    """
    return chosen or ("all" if model.startswith("local:") else "coding")


def apply_profile(
    tools: Iterable[Tool], profile: str, named: Collection[str], shipped: Iterable[Tool]
) -> list[Tool]:
    """Return the tools of a run, with those outside its profile kept from the model.

    A tool that is kept from the model can still be called by people, scripts and other tools. Only
    tools of plugins that are on by default belong to a profile: what a file puts in their place
    stays.

    Args:
        tools: All tools of the run.
        profile: `coding` or `all`.
        named: Tools that settings or agent files name. The model gets them whatever the profile.
        shipped: The tools of the plugins.
    """
    if profile == "all":
        return list(tools)
    manifests = read_shipped_manifests().values()
    beyond = set(chain.from_iterable(one.all for one in manifests)).difference(named)
    outside = {id(tool) for tool in shipped if tool.full_name in beyond}
    return [
        replace(tool, loading=Loading.INTERNAL) if id(tool) in outside else tool for tool in tools
    ]


def choose_shapes(chosen: str, model: str) -> str:
    """Return the shapes of tools for a model: the ones that the settings name, or its family's."""
    if chosen != "auto":
        return chosen
    name = model.rpartition("/")[2].partition(":")[2] or model.rpartition("/")[2]
    families = (family for family, named in _FAMILIES.items() if named.match(name.lower()))
    return next(families, "own")


_FAMILIES = {
    "gpt": re.compile(r"gpt-|codex|o\d"),
    "gemini": re.compile(r"gemini-"),
    # Qwen Code's names; smaller models of the family do better with tools described in full.
    "qwen": re.compile(r"qwen.*coder"),
    "claude": re.compile(r"(?:[\w.]*anthropic\.)?claude-[a-z]+-(?:[4-9]|\d\d)(?:\D|$)"),
}


_SHAPES = (
    *("apply_patch", "shell", "local_shell", "bash", "str_replace_based_edit_tool", "memory"),
    *("read_many_files", "replace", "edit", "run_shell_command", "grep_search", "glob"),
    "list_directory",
)


def apply_shapes(
    tools: Sequence[Tool], shapes: str, shipped: Iterable[Tool], model: str = ""
) -> list[Tool]:
    """Return the tools in the shapes that a family of models was trained on.

    The tools whose place they take are kept from the model and do the work. If a file has put
    another tool in the place of one, or has one of these names, the tools stay as they are.

    Args:
        tools: The tools of the run.
        shapes: The family, or `own`.
        shipped: The tools of the plugins.
        model: The model: OpenAI's tool types are for its Responses API and its newer models.
    """
    family = _load_shapes(shapes, model)
    used = (*family.replaced, *family.renamed)
    handlers = {id(tool.handler): tool for tool in shipped if tool.full_name in used}
    found = [tool for tool in tools if id(tool.handler) in handlers]
    taken = {tool.full_name for tool in tools}
    if len(found) < len(used) or any(tool.full_name in taken for tool in family.added):
        return list(tools)

    def shape(tool: Tool) -> Tool:
        if id(tool.handler) not in handlers:
            return tool
        names = family.renamed.get(tool.full_name)
        if names is None:
            return replace(tool, loading=Loading.INTERNAL)
        from ferrule.toolkits.model_family_tools.renamed_arguments import rename_parameters

        return rename_parameters(tool, names)

    return [*map(shape, tools), *family.added]


@frozen
class _Shapes:
    """The tools of a family, those whose place they take, and those with other parameter names."""

    added: tuple[Tool, ...] = ()
    replaced: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])


def _load_shapes(shapes: str, model: str) -> _Shapes:
    match shapes:
        case "gpt":
            return _load_openai_shapes(model)
        case "claude":
            from ferrule.toolkits.model_family_tools import anthropic

            return _Shapes(anthropic.SHAPES, anthropic.REPLACED)
        case "gemini":
            from ferrule.toolkits.model_family_tools import gemini

            return _Shapes(gemini.SHAPES, gemini.REPLACED, gemini.RENAMED)
        case "qwen":
            from ferrule.toolkits.model_family_tools import qwen

            return _Shapes(qwen.SHAPES, qwen.REPLACED, qwen.RENAMED)
        case _:
            return _Shapes()


def _load_openai_shapes(model: str) -> _Shapes:
    from ferrule.toolkits.files.patch_tool import apply_patch

    if model.startswith("openai-responses:"):
        from ferrule.toolkits.model_family_tools import openai

        typed = openai.choose_shapes(model)
        if typed:
            return _Shapes(typed, openai.REPLACED)
    return _Shapes((apply_patch,), ("edit_file",))


def load_memory_tool(chosen: str, workspace: Path) -> tuple[Tool, ...]:
    """Return `memory`, if the settings switch it on.

    Args:
        chosen: A folder, `state` for one of Ferrule's own for this workspace, or nothing.
        workspace: The workspace.

    Raises:
        ConfigError: The folder is in the workspace or around it, or cannot be made.
    """
    if chosen in ("", "no"):
        return ()
    from ferrule.toolkits.model_family_tools.memory import make_memory_tool

    if chosen == "state":
        digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        folder = paths.state() / "memory" / digest
    else:
        folder = Path(chosen).expanduser()
    if not folder.is_absolute():
        raise ConfigError(
            f"`tools.memory` is `{chosen}`", hint="say `state`, or an absolute path of a folder"
        )
    real = Path(os.path.realpath(folder))
    root = Path(os.path.realpath(workspace))
    if real.is_relative_to(root) or root.is_relative_to(real):
        raise ConfigError(
            f"`tools.memory`: `{folder}` and the workspace lie in one another",
            hint="name a folder outside, so that no other tool changes what is remembered",
        )
    paths.make_private_folder(folder)
    return (make_memory_tool(folder),)


def names_added_by_runs() -> tuple[str, ...]:
    """Return the names of tools that a run adds itself when it needs them.

    These read artifacts and skills, find deferred tools, follow background tasks, delegate to
    sub-agents, apply patches and open what a sandbox refused.
    """
    from ferrule.engine import background
    from ferrule.engine.delegation.sub_agent import DELEGATE
    from ferrule.toolkits.commands.refused_access import OPENING_TOOL

    tools = (*artifact_tools.TOOLS, *background.TASK_TOOLS)
    names = (tool.full_name for tool in tools)
    return (*names, *FINDERS, DELEGATE, NAME, OPENING_TOOL.name, *_SHAPES)
