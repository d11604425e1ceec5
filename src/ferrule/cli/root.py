"""The command `ferrule`: the table of its commands."""

from __future__ import annotations

import click

from ferrule._version import __version__
from ferrule.core.errors import ConfigError
from ferrule.runtime.lazy_group import CommandTable, LazyGroup
from ferrule.storage.plugins.metadata_index import find_metadata

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("ferrule.cli.run.command:run", "Answer one message and exit."),
    "chat": ("ferrule.cli.chat.command:chat", "Chat with a model that works in this folder."),
    "setup": (
        "ferrule.cli.setup.command:setup",
        "Choose the model that is used when none is named.",
    ),
    "tools": (
        "ferrule.cli.tools.command:tools",
        "List, show and call tools; check, test and write tool files.",
    ),
    "skills": (
        "ferrule.cli.skills:skills",
        "List, show and check skills.",
    ),
    "plugins": (
        "ferrule.cli.plugins:plugins",
        "List plugins, what they bring and whether they are on.",
    ),
    "mcp": ("ferrule.cli.mcp:mcp", "List, approve, test and sign in to MCP servers."),
    "a2a": ("ferrule.cli.a2a:a2a", "List, approve and test A2A agents."),
    "policy": ("ferrule.cli.policy:policy", "Explain, test and check permission rules."),
    "models": ("ferrule.cli.models:models", "List, probe and pull models."),
    "sessions": (
        "ferrule.cli.sessions.command:sessions",
        "List, show, resume, export, verify and archive sessions.",
    ),
    "eval": (
        "ferrule.cli.eval:evaluate",
        "Run cases by models, count what passes, compare two reports.",
    ),
    "audit": (
        "ferrule.cli.sessions.audit:audit",
        "Verify, explain, export and sign the record of tool calls.",
    ),
    "submit": ("ferrule.cli.distributed:submit", "Submit a message as a job for workers."),
    "worker": ("ferrule.cli.distributed:worker", "Run jobs from a shared queue."),
    "validate": (
        "ferrule.cli.validate:validate",
        "Check this folder's settings, rules, tools and hooks.",
    ),
    "serve": (
        "ferrule.servers.command:serve",
        "Serve tools and agents over MCP, ACP, A2A, AG-UI, OpenAI or a console.",
    ),
    "trust": (
        "ferrule.cli.trust:trust",
        "Trust this folder's own settings, rules and tools, or revoke that.",
    ),
    "doctor": (
        "ferrule.cli.doctor.command:doctor",
        "Report what this machine supports and what is missing.",
    ),
    "import": (
        "ferrule.cli.imports.command:import_",
        "Import settings, agents, commands and servers of Claude Code.",
    ),
    "init": (
        "ferrule.cli.init.command:init",
        "Create an agent project, or only a commented settings file.",
    ),
    "completion": (
        "ferrule.cli.completion:completion",
        "Print shell completion for bash, zsh or fish.",
    ),
    "man": (
        "ferrule.cli.man_pages:man",
        "Write the manual pages into a folder.",
    ),
    "uninstall": (
        "ferrule.cli.uninstall:uninstall",
        "List what is on this machine's disk, and remove it.",
    ),
}
"""Command name -> (`module:object`, one line of help). Listing the commands loads none of them."""


GROUPS: dict[str, tuple[str, ...]] = {
    "Work": ("run", "chat", "setup", "models"),
    "What a model can use": ("tools", "skills", "plugins", "mcp", "a2a"),
    "What it may do": ("policy", "trust", "validate", "doctor"),
    "What it did": ("sessions", "audit", "eval"),
    "Serve and scale": ("serve", "submit", "worker"),
    "Set up and take down": ("init", "import", "completion", "man", "uninstall"),
}
"""The commands as `--help` lists them."""


def _find_plugin_commands() -> CommandTable:
    """Return the commands of installed plugins. Nothing of a plugin is imported for it."""
    if not find_metadata():
        return {}
    # Only with a plugin is a reader of manifests loaded.
    from ferrule.storage.plugins.installed import find_installed_manifests

    found: dict[str, tuple[str, str]] = {}
    for manifest in find_installed_manifests().values():
        for name, entry in manifest.commands.items():
            if name in COMMANDS or name in found:
                raise ConfigError(
                    f"the plugin `{manifest.name}` of `{manifest.distribution}` brings a command "
                    f"`{name}`, and there is one",
                    code="plugin_conflict",
                    hint=f"uninstall it (`pip uninstall {manifest.distribution}`), and tell its "
                    "author",
                )
            found[name] = (entry.object, entry.text)
    return found


ELSEWHERE = {
    "undo": "`/undo` in `ferrule chat`",
    "resume": "`ferrule chat --resume`",
    "continue": "`ferrule chat --resume`",
    "history": "`ferrule sessions list`",
    "permissions": "`ferrule policy`",
    "explain": "`ferrule policy explain`",
    "config": "`ferrule setup`, or `ferrule validate` to check settings",
    "settings": "`ferrule setup`, or `ferrule validate` to check settings",
    "login": "`ferrule setup`",
    "auth": "`ferrule setup`",
    "exec": "`ferrule run`",
    "ask": "`ferrule run`",
}
"""Commands that people know from other programs, and what does their job here."""


def _check_plugin_command(name: str) -> None:
    """Raise ConfigError for the command of a plugin that is not used here."""
    from ferrule.runtime.chosen_plugins import require_command
    from ferrule.storage.settings.settings import load_settings

    require_command(name, load_settings())


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    groups=GROUPS,
    find_more=_find_plugin_commands,
    check=_check_plugin_command,
    elsewhere=ELSEWHERE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="ferrule %(version)s")
def ferrule() -> None:
    """Let language models use tools in this folder.

    A model writes files and runs programs only where a permission rule or a person allows it.

    \b
    Examples:
      ferrule run "What is this project?"           answer one message
      ferrule chat --mode sandboxed                 a conversation in this folder
      ferrule run --yes-to edit_file "Fix the test" without a terminal: edits, nothing else
      ferrule sessions list                         what was asked and done
      ferrule COMMAND --help                        options and examples of a command
    """  # noqa: D301  click reads the mark
