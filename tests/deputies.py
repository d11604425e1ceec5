"""The programs that Ferrule starts besides commands, as the documentation shows them."""

from __future__ import annotations

from ferrule.core.value_class import frozen
from ferrule.sandbox.deputies import DeputyRights


@frozen
class Deputy:
    """A kind of program that Ferrule starts.

    Attributes:
        name: What it is.
        programs: The names that are looked for; none for those that people write.
        rights: Which rights it has.
        more: What it has beyond commands where its rights are its own.
    """

    name: str
    programs: tuple[str, ...]
    rights: DeputyRights
    more: str = ""


DEPUTIES: tuple[Deputy, ...] = (
    Deputy(
        "our own processes (fork server, sandbox probe, scripts, code index)",
        ("the interpreter that runs Ferrule",),
        DeputyRights.OWN,
        "no sandbox of commands; most lock themselves down",
    ),
    Deputy("bubblewrap", ("bwrap",), DeputyRights.OWN, "it builds the sandbox"),
    Deputy("containers", ("docker", "podman"), DeputyRights.OWN, "it builds the sandbox"),
    Deputy("search", ("rg",), DeputyRights.OWN, "no sandbox"),
    Deputy("git tools", ("git",), DeputyRights.COMMANDS),
    Deputy(
        "git tools without a sandbox",
        ("git",),
        DeputyRights.OWN,
        "Landlock in place of the sandbox, for reading alone",
    ),
    Deputy(
        "text in pictures", ("tesseract",), DeputyRights.OWN, "a sandbox with an empty workspace"
    ),
    Deputy("pages of PDFs", ("pdftoppm",), DeputyRights.OWN, "a sandbox with an empty workspace"),
    Deputy(
        "pictures of web pages",
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        DeputyRights.OWN,
        "a sandbox with an empty workspace, and the hosts of the page",
    ),
    Deputy("download of models", ("uvx",), DeputyRights.OWN, "no sandbox; pip of our interpreter"),
    Deputy(
        "browser for signing in",
        ("xdg-open", "open"),
        DeputyRights.OWN,
        "no sandbox",
    ),
    Deputy("editor of the chat", ("$VISUAL", "$EDITOR"), DeputyRights.OWN, "no sandbox"),
    Deputy(
        "command hooks",
        (),
        DeputyRights.EITHER,
        "the person's ordinary variables, those of the settings file, `$FERRULE_HOOKS`, and the "
        "folders in `~/.claude` of the scripts that are named",
    ),
    Deputy("checkers", (), DeputyRights.COMMANDS),
    Deputy(
        "language servers with `env`",
        (),
        DeputyRights.OWN,
        "the variables of their entry and the person's ordinary ones",
    ),
    Deputy("language servers without `env`", (), DeputyRights.COMMANDS),
    Deputy(
        "MCP servers with variables, folders, hosts, a download or a container",
        (),
        DeputyRights.OWN,
        "what their entry gives them",
    ),
    Deputy("other MCP servers", (), DeputyRights.COMMANDS),
)
"""Every kind of program that Ferrule starts besides commands."""
