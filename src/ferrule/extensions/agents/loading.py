"""Load all agents of a workspace and of its person, and decide which may be delegated to.

    .ferrule/agents/*.md   .harness/agents/*.md
        the repository's; inert until a person trusts it (`storage.trust`)
    agents/*.md
        in the person's own settings folder, which needs no trust

Where both define one agent, the person's is used and the other is reported as shadowed. An invalid
file is left out with its reason, and the others are used. If it is the person's, the repository's
agent of that name is left out with it.

A repository chooses no model, trusted or not: that of its agents is the session's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.extensions.front_matter import FileWarning, InvalidFile
from ferrule.storage.private_files import read_own_files
from ferrule.storage.trust import ConfigurationSnapshot

from .agent_file import find_agent_name, parse_agent

FOLDERS = (".ferrule/agents", ".harness/agents")
SETTINGS_SUBFOLDER = "agents"
MAX_AGENTS = 100


@frozen
class LoadedAgents:
    """The loaded agents, for `Parts(agents=...)`.

    `inert` names the repository's agent files that have no effect because nobody trusts them.
    """

    agents: tuple[SubAgent, ...] = ()
    warnings: tuple[FileWarning, ...] = ()
    left_out: tuple[InvalidFile, ...] = ()
    inert: tuple[str, ...] = ()


def load_agents(
    snapshot: ConfigurationSnapshot, settings_folder: Path | None = None
) -> LoadedAgents:
    """Load the agents of a workspace and of the person's settings folder.

    Args:
        snapshot: The workspace as `Trust.read` read it.
        settings_folder: The person's settings folder.

    Raises:
        ConfigError: There are more than `MAX_AGENTS`, or others can write the person's files.
    """
    repository_files = {name: data for name, data in snapshot.files.items() if _is_agent(name)}
    links = [name for name in snapshot.links if _is_agent(name) or name in FOLDERS]
    inert: tuple[str, ...] = ()
    if snapshot.state != "trusted":
        inert = tuple(sorted((*repository_files, *links)))
        repository_files = {}
        links = []
    own_files: dict[str, bytes] = {}
    if settings_folder is not None:
        agents = sorted((settings_folder / SETTINGS_SUBFOLDER).glob("*.md"))
        own_files = read_own_files(settings_folder, agents)
    warnings = [FileWarning(name, "it is a link, and links are not followed") for name in links]
    left_out: list[InvalidFile] = []
    own_agents = _parse_all(own_files, warnings, left_out)
    taken = {*own_agents, *(file.name for file in left_out)}
    agents = dict(own_agents)
    for name, agent in _parse_all(repository_files, warnings, left_out).items():
        if name not in taken:
            agents[name] = _leave_out_model(agent, warnings)
            continue
        why = "your own file of that name is invalid"
        if name in own_agents:
            why = f"{_find_file(own_agents[name])} takes precedence"
        warnings.append(FileWarning(_find_file(agent), f"it is not used: {why}"))
    if len(agents) > MAX_AGENTS:
        raise ConfigError(f"{len(agents)} agents, the bound is {MAX_AGENTS}", code="agents")
    ordered = tuple(agents[name] for name in sorted(agents))
    return LoadedAgents(ordered, tuple(warnings), tuple(left_out), inert)


def _parse_all(
    files: Mapping[str, bytes], warnings: list[FileWarning], left_out: list[InvalidFile]
) -> dict[str, SubAgent]:
    """Parse the agent files of one place, by name. Of two with one name, neither is used."""
    found: dict[str, SubAgent] = {}
    repeated: set[str] = set()
    for name in sorted(files):
        try:
            agent, new_warnings = parse_agent(files[name], name)
        except ConfigError as error:
            agent_name = find_agent_name(files[name], name)
            left_out.append(InvalidFile("agent", agent_name, error.detail, error.hint))
            continue
        warnings += new_warnings
        earlier = found.setdefault(agent.name, agent)
        if earlier is not agent:
            repeated.add(agent.name)
            detail = f"{name}: there is another agent `{agent.name}`, in {_find_file(earlier)}"
            left_out.append(InvalidFile("agent", agent.name, detail, "rename one"))
    return {name: agent for name, agent in found.items() if name not in repeated}


def _leave_out_model(agent: SubAgent, warnings: list[FileWarning]) -> SubAgent:
    """Return an agent of a repository: where code and keys go is for the person to choose."""
    if not agent.model:
        return agent
    detail = (
        f"a repository chooses no model, so `{agent.model}` is not used but the session's; an "
        "agent file in your settings folder may name one"
    )
    warnings.append(FileWarning(_find_file(agent), detail))
    return replace(agent, model="")


def _find_file(agent: SubAgent) -> str:
    return agent.source.removeprefix("file ")


def _is_agent(name: str) -> bool:
    folder, _, leaf = name.rpartition("/")
    return folder in FOLDERS and leaf.endswith(".md")
