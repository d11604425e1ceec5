"""All agents of a workspace and of its person: which files there are, and which of them may be
delegated to.

    .ferrule/agents/*.md   .harness/agents/*.md     the repository's; inert until a person trusts it as it stands (`storage.trust`)
    agents/*.md                                     in the person's own settings folder, which needs no trust

The person's own holds where both name one agent, and the other is said to be shadowed. A trusted
file that is wrong is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.extensions.front_matter import Warned
from ferrule.storage.trust import Snapshot

from .files import parse_agent

FOLDERS = (".ferrule/agents", ".harness/agents")
OWN = "agents"
MOST_AGENTS = 100


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """`agents` are for `Agent(agents=...)`. `inert` names the repository's agent files that have no
    effect because nobody trusts them.
    """

    agents: tuple[SubAgent, ...] = ()
    warnings: tuple[Warned, ...] = ()
    inert: tuple[str, ...] = ()


def load_agents(snapshot: Snapshot, own: Path | None = None) -> LoadedAgents:
    """The agents of a workspace as `Trust.look` saw it, and of `own`, the person's settings folder.

    Raises ConfigError, all problems at once, each with its place.
    """
    theirs = {name: data for name, data in snapshot.files.items() if _is_agent(name)}
    links = [name for name in snapshot.links if _is_agent(name) or name in FOLDERS]
    if snapshot.state != "trusted":
        inert, theirs, links = tuple(sorted((*theirs, *links))), {}, []
    else:
        inert = ()
    mine = _own_files(own) if own is not None else {}
    warnings = [Warned(name, "it is a link, and links are not followed") for name in links]
    problems: list[str] = []
    own_agents = _parsed(mine, warnings, problems)
    agents = dict(own_agents)
    for name, agent in _parsed(theirs, warnings, problems).items():
        if name in own_agents:
            by = own_agents[name].source.removeprefix("file ")
            warnings.append(
                Warned(agent.source.removeprefix("file "), f"it is not used: {by} holds")
            )
        else:
            agents[name] = agent
    if len(agents) > MOST_AGENTS:
        problems.append(f"{len(agents)} agents, the bound is {MOST_AGENTS}")
    if problems:
        raise ConfigError("\n".join(problems), code="agents")
    return LoadedAgents(tuple(agents[name] for name in sorted(agents)), tuple(warnings), inert)


def _parsed(
    files: Mapping[str, bytes], warnings: list[Warned], problems: list[str]
) -> dict[str, SubAgent]:
    """The agents of one place by name; two with one name are a problem."""
    found: dict[str, SubAgent] = {}
    for name in sorted(files):
        try:
            agent, warned = parse_agent(files[name], name)
        except ConfigError as error:
            problems.append(str(error))
            continue
        warnings += warned
        earlier = found.setdefault(agent.name, agent)
        if earlier is not agent:
            place = earlier.source.removeprefix("file ")
            problems.append(
                f"{name}: there is another agent `{agent.name}`, in {place}\nhint: rename one"
            )
    return found


def _is_agent(name: str) -> bool:
    folder, _, leaf = name.rpartition("/")
    return folder in FOLDERS and leaf.endswith(".md")


def _own_files(folder: Path) -> dict[str, bytes]:
    """What a person's settings folder holds; a file that others may write to is refused."""
    found: dict[str, bytes] = {}
    for path in sorted((folder / OWN).glob("*.md")):
        if not path.is_file():
            continue
        about = path.stat()
        if about.st_uid not in (os.getuid(), 0) or about.st_mode & 0o022:
            raise ConfigError(
                f"`{path}`: others can write it", hint=f"check it, then `chmod go-w {path}`"
            )
        found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found
