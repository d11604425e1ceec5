"""`ferrule import claude-code`: a plan first, nothing overwritten, no secret copied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.extensions.skills.skill_file import parse_skill
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import TrustStore

TOKEN = "ghp_" + "a1B2" * 9

SETTINGS = {
    "model": "claude-opus-4-5",
    "env": {"API_TOKEN": TOKEN, "TZ": "UTC", "ANTHROPIC_MODEL": "x"},
    "hooks": {"PreToolUse": []},
    "statusLine": {"type": "command"},
    "permissions": {
        "allow": ["Bash(git diff:*)", "Write(src/**)", "Grep", "WebSearch", "Edit(src/**)"],
        "ask": ["Bash(git push:*)"],
        "deny": ["Read(private/**)", "Delete(**)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../x"],
    },
}
AGENT = "---\nname: reviewer\ndescription: Reads code.\ntools: Read, Grep\nmodel: sonnet\n---\nYou review.\n"
COMMAND = "---\ndescription: Fix an issue\nallowed-tools: Bash(git:*)\n---\nFix $ARGUMENTS.\n\n!`git status`\n"


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person and a project that were set up for Claude Code."""
    home = Path.home()
    put(paths.claude() / "settings.json", SETTINGS)
    put(paths.claude() / "agents/reviewer.md", AGENT)
    put(paths.claude() / "commands/git/fix-issue.md", COMMAND)
    put(home / ".claude.json", {"mcpServers": {
        "github": {"command": "npx", "args": ["-y", "server"], "env": {"GITHUB_TOKEN": TOKEN, "TZ": "UTC"}},
        "docs": {"url": "https://docs.example/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}},
        "leaky": {"command": "npx", "args": ["--token", TOKEN]},
    }})  # fmt: skip
    put(
        folder / ".claude/settings.json",
        {"permissions": {"allow": ["Bash(npm test:*)"], "deny": ["Read(a/**)"]}, "model": "opus"},
    )
    put(
        folder / ".claude/settings.local.json",
        {"permissions": {"allow": ["Bash(ls:*)", "Bash(npm test:*)"]}},
    )
    put(folder / ".claude/agents/writer.md", "---\ndescription: Writes.\n---\nYou write.\n")
    put(folder / ".claude/skills/notes/SKILL.md", "---\nname: notes\ndescription: d\n---\nx\n")
    put(folder / "CLAUDE.md", "Be short.\n")
    return home


def files(*roots: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()
    }


def test_nothing_is_written_before_a_yes(
    ferrule: Callable[..., Any], home: Path, folder: Path
) -> None:
    before = files(home, folder, paths.config())
    dry = ferrule("import", "claude-code", "--dry-run")
    assert dry.code == 0
    assert '- "Bash(git diff:*)"' in dry.out
    assert ferrule("import", "claude-code").code == 7, "nobody can be asked"
    assert (
        json.loads(ferrule("import", "claude-code", "--json").out)["settings"]["mode"]
        == "acceptEdits"
    )
    assert files(home, folder, paths.config()) == before


def test_settings_agents_commands_and_servers_work_afterwards(
    ferrule: Callable[..., Any], home: Path, folder: Path
) -> None:
    assert ferrule("import", "claude-code", "--yes").code == 0
    TrustStore().trust(folder)
    settings = load_settings(workspace=folder)
    assert (settings.model, settings.mode) == ("anthropic:claude-opus-4-5", "acceptEdits")
    rules = settings.rules
    assert {rule.text for rule in rules.allow} == {
        "Bash(git diff:*)", "Edit(src/**)", "Read", "Bash(npm test:*)", "Bash(ls:*)",
    }  # fmt: skip
    assert [rule.text for rule in rules.ask] == ["Bash(git push:*)"]
    assert {rule.text for rule in rules.deny} == {"Read(private/**)", "Read(a/**)"}
    assert (paths.config() / "agents/reviewer.md").read_text() == AGENT
    assert (folder / ".ferrule/agents/writer.md").is_file()
    skill = paths.config() / "skills/git-fix-issue/SKILL.md"
    parsed = parse_skill(skill.read_bytes(), str(skill))
    assert parsed.description == "The command /git-fix-issue: Fix an issue"
    assert "stands for what the person wrote" in parsed.body
    assert ferrule("validate").code == 0
    listed = ferrule("mcp", "list").out
    assert "github" in listed
    assert "docs" in listed


def test_nothing_is_overwritten_and_what_could_not_be_added_is_shown(
    ferrule: Callable[..., Any], home: Path, folder: Path
) -> None:
    own = paths.config() / "ferrule.yaml"
    put(own, "# mine\npermissions:\n  deny: [write_file]\n")
    put(paths.config() / "agents/reviewer.md", "mine")
    put(folder / ".ferrule/ferrule.yaml", "# ours\n")
    ran = ferrule("import", "claude-code", "--yes")
    assert ran.code == 0
    text = own.read_text()
    assert text.startswith("# mine\npermissions:\n  deny: [write_file]\n")
    assert "mode:" in text
    assert "Bash(git push:*)" not in text
    assert "merge by hand:\npermissions:" in ran.out
    assert (paths.config() / "agents/reviewer.md").read_text() == "mine"
    assert (folder / ".ferrule/ferrule.yaml").read_text() == "# ours\n"
    before = files(home, folder, paths.config())
    again = ferrule("import", "claude-code", "--yes")
    assert "nothing to write" in again.err
    assert files(home, folder, paths.config()) == before


def test_no_secret_is_copied_or_shown(
    ferrule: Callable[..., Any], home: Path, folder: Path
) -> None:
    ran = ferrule("import", "claude-code", "--yes")
    written = files(folder / ".ferrule", paths.config())
    assert not any(TOKEN.encode() in data for data in written.values())
    assert TOKEN not in ran.out + ran.err + ferrule("import", "claude-code", "--json").out
    servers = json.loads((paths.config() / "mcp.json").read_text())["mcpServers"]
    assert servers["github"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "TZ": "UTC"}
    assert servers["docs"]["headers"] == {"Authorization": "${DOCS_AUTHORIZATION}"}
    assert "leaky" not in servers
    assert "export it as `DOCS_AUTHORIZATION`" in ran.out


def test_what_has_no_counterpart_is_said_with_its_reason(
    ferrule: Callable[..., Any], home: Path, folder: Path
) -> None:
    out = ferrule("import", "claude-code", "--dry-run").out
    lines = [line for line in out.splitlines() if line.startswith("- ")]

    def reason(what: str) -> str:
        (line,) = [line for line in lines if what in line.partition("`: ")[0] + "`"]
        return line

    assert "so nothing is denied by it" in reason("`Delete(**)`")
    assert "`WebSearch` is not a tool here" in reason("`WebSearch`")
    assert "secrets are not copied" in reason("`API_TOKEN`")
    assert "`env.allow`" in reason("`TZ`")
    assert "Claude Code itself" in reason("`ANTHROPIC_MODEL`")
    assert "status line" in reason("`statusLine`")
    assert "tools stay in the workspace" in reason("`permissions.additionalDirectories`")
    assert "a folder does not choose it" in reason("`model: opus`")
    assert any("`sonnet` names no model here" in line for line in lines)
    assert any("nothing runs before the gate" in line for line in lines)
    assert any("`allowed-tools` of the command" in line for line in lines)
    places = [line for line in out.splitlines() if line.startswith("= ")]
    assert any("hooks for 1 events" in line for line in places)
    assert any("1 skills" in line for line in places)
    assert any("CLAUDE.md" in line for line in places)


def test_a_plugin_is_taken_over_into_the_workspace(
    ferrule: Callable[..., Any], tmp_path: Path, folder: Path
) -> None:
    plugin = tmp_path / "plugin"
    put(plugin / ".claude-plugin/plugin.json", {"name": "p"})
    put(plugin / "agents/a.md", AGENT)
    put(plugin / "commands/notes.md", "Take notes.\n")
    put(plugin / "skills/notes/SKILL.md", "---\nname: notes\ndescription: d\n---\nx\n")
    put(plugin / "skills/notes/more.md", "more\n")
    put(plugin / "hooks/hooks.json", {"hooks": {}})
    ran = ferrule("import", "claude-code", str(plugin), "--yes")
    assert ran.code == 0
    made = sorted(
        path.relative_to(folder).as_posix() for path in (folder / ".ferrule").rglob("*.md")
    )
    assert made == [
        ".ferrule/agents/reviewer.md",
        ".ferrule/skills/command-notes/SKILL.md",
        ".ferrule/skills/notes/SKILL.md",
        ".ferrule/skills/notes/more.md",
    ]
    assert "the hooks of" in ran.out
    TrustStore().trust(folder)
    assert ferrule("validate").code == 0


def test_no_link_is_followed(ferrule: Callable[..., Any], tmp_path: Path, folder: Path) -> None:
    put(tmp_path / "elsewhere.md", AGENT)
    (folder / ".claude/agents").mkdir(parents=True)
    (folder / ".claude/agents/linked.md").symlink_to(tmp_path / "elsewhere.md")
    put(folder / ".claude/agents/real.md", AGENT.replace("reviewer", "real"))
    ran = ferrule("import", "claude-code", "--dry-run")
    assert "it is a link, and no link is followed" in ran.out
    (folder / ".ferrule").symlink_to(tmp_path)
    linked = ferrule("import", "claude-code", "--yes")
    assert linked.code == 2
    assert "is a link; nothing was written through it" in linked.err
