"""What is wrong with the agents and the skills of a workspace, in the words of those who load
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.extensions.agents.files import parse_agent
from ferrule.extensions.agents.loading import FOLDERS, load_agents
from ferrule.extensions.skills.loading import load_skills
from ferrule.storage.trust import Snapshot

from .tool_file import Problem, problem, problems_of, warnings_of

_HINT = "hint: "


def check_agents(seen: Snapshot, tools: Iterable[str]) -> Iterator[Problem]:
    """Each agent file for itself, then all together. `tools` are the names of the tools there
    are.
    """
    known = frozenset(tools)
    said: set[str] = set()
    for name, data in sorted(seen.files.items()):
        if name.rpartition("/")[0] not in FOLDERS or not name.endswith(".md"):
            continue
        try:
            agent, warned = parse_agent(data, name)
        except ConfigError as error:
            found = problems_of(error, name)
        else:
            found = warnings_of(warned)
            missing = [
                one
                for one in agent.tools or ()
                if one not in known and "__" not in one and "*" not in one
            ]
            found += [
                problem(
                    name, f"the agent may use `{one}`, and there is no such tool", level="warning"
                )
                for one in missing
            ]
        said.update(one.message for one in found)
        yield from found
    try:
        load_agents(seen)
    except ConfigError as error:
        lines = [line for line in error.detail.splitlines() if line and not line.startswith(_HINT)]
        yield from (one for line in lines if (one := problem(*_split(line))).message not in said)


def _split(line: str) -> tuple[str, str]:
    where, _, message = line.partition(": ")
    return (where, message) if message else ("", line)


def check_skills(seen: Snapshot) -> list[Problem]:
    """What keeps skills from being loaded, and what was likely not meant. Those of the person are
    not looked at.
    """
    loaded = load_skills(Path(seen.workspace), seen)
    broken = set(loaded.broken)
    return [
        problem(one.where, one.message, level="error" if one in broken else "warning")
        for one in loaded.warnings
    ]
