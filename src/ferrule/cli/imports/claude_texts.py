"""Agents, slash commands and skills of Claude Code as Ferrule's own files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.extensions.agents.agent_file import parse_agent
from ferrule.extensions.front_matter import FileWarning, get_text, parse_document
from ferrule.extensions.skills.skill_file import FILE_NAME, MOST_BYTES, parse_skill

from .plan import NewFile, Plan

_LOST_IN_COMMANDS = {
    "allowed-tools": "a text grants nothing: write permission rules",
    "model": "a skill is read by whatever model runs",
    "argument-hint": "a skill has no arguments of its own",
    "disable-model-invocation": "the model decides when it reads a skill",
}
_SHELL = re.compile(r"^!`|(?<=\s)!`", re.MULTILINE)
_MOST_FILES = 200


def plan_agents(source: Path, root: Path, below: str, plan: Plan) -> None:
    """Plan the agents of a folder, each as a file `below/NAME.md` of `root`."""
    for path, data in _read_texts(source, "*.md", plan):
        try:
            agent, warnings = parse_agent(data, str(path))
        except ConfigError as error:
            plan.leave(f"the agent `{path}`", error.detail.removeprefix(f"{path}:"))
            continue
        _note_warnings(plan, f"of the agent `{path}`", warnings)
        name = f"{below}/{_make_name(agent.name)}.md"
        plan.add_file(NewFile(root, name, data.decode("utf-8-sig"), str(path)))


def plan_commands(source: Path, root: Path, below: str, plan: Plan) -> None:
    """Plan the slash commands of a folder, each as a skill `below/NAME/SKILL.md` of `root`."""
    for path, data in _read_texts(source, "*.md", plan):
        if not data.strip():
            plan.leave(f"the command `{path}`", "it is empty")
            continue
        name = _make_name("-".join(path.relative_to(source).with_suffix("").parts))
        try:
            text = _convert_command(data, path, name, plan)
            parse_skill(text.encode(), f"{name}/{FILE_NAME}")
        except ConfigError as error:
            plan.leave(f"the command `{path}`", error.detail.removeprefix(f"{path}:"))
            continue
        if any(file.name == f"{below}/{name}/{FILE_NAME}" for file in plan.files):
            # A plugin may have a skill and a command of one name.
            text = text.replace(f"name: {name}\n", f"name: command-{name}\n", 1)
            name = f"command-{name}"
        plan.add_file(NewFile(root, f"{below}/{name}/{FILE_NAME}", text, str(path)))


def _convert_command(data: bytes, path: Path, name: str, plan: Plan) -> str:
    document = parse_document(data if data.startswith(b"---") else b"---\n---\n" + data, str(path))
    for key in document.fields.pairs or {}:
        if key in _LOST_IN_COMMANDS:
            plan.leave(f"`{key}` of the command `{path}`", _LOST_IN_COMMANDS[key])
    body = document.body
    if _SHELL.search(body):
        plan.leave(
            f"the programs that the command `{path}` runs by itself",
            "nothing runs before the gate: the model reads the line, and may run it as a call",
        )
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), name)
    about = get_text(document.fields, "description") or first
    description = f"The command /{name}: {about}"[:1000]
    takes = "$ARGUMENTS" in body or re.search(r"\$[1-9]", body) is not None
    note = (
        "`$ARGUMENTS` (and `$1`, `$2`, ...) below stands for what the person wrote after the "
        "command's name.\n\n"
        if takes
        else ""
    )
    head = f"name: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}"
    return f"---\n{head}\n---\n\n{note}{body.strip()}\n"


def plan_skills(source: Path, root: Path, below: str, plan: Plan) -> None:
    """Plan the skills of a plugin, with all their text files, as `below/NAME` of `root`."""
    for skill in sorted(source.glob(f"*/{FILE_NAME}")):
        folder = skill.parent
        for path, data in _read_texts(folder, "*", plan):
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                plan.leave(f"`{path}`", "it is not text: copy it by hand")
                continue
            name = f"{below}/{folder.name}/{path.relative_to(folder).as_posix()}"
            plan.add_file(NewFile(root, name, text, str(path)))


def _read_texts(source: Path, pattern: str, plan: Plan) -> Iterator[tuple[Path, bytes]]:
    """Yield the files below a folder with their content. Links and what is too large are noted."""
    found = sorted(path for path in source.rglob(pattern) if path.is_symlink() or path.is_file())
    for path in found[_MOST_FILES:]:
        plan.leave(f"`{path}`", f"a folder gives {_MOST_FILES} files at the most")
    for path in found[:_MOST_FILES]:
        if path.is_symlink() or any(
            parent.is_symlink() for parent in path.parents if parent.is_relative_to(source)
        ):
            plan.leave(f"`{path}`", "it is a link, and no link is followed")
            continue
        data = path.read_bytes()
        if len(data) > MOST_BYTES:
            plan.leave(f"`{path}`", f"it has more than {MOST_BYTES} bytes")
            continue
        yield path, data


def _note_warnings(plan: Plan, of: str, warnings: list[FileWarning]) -> None:
    for warning in warnings:
        plan.leave(f"a part {of}", warning.message)


def _make_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:64] or "unnamed"
