"""Other agents of the terminal: how each is installed, started against a stub, and what it calls.

Installed in one folder, which is named to `measurements`:

    npm install --prefix FOLDER/npm @openai/codex opencode-ai @qwen-code/qwen-code \
        @mariozechner/pi-coding-agent
    python3.12 -m venv FOLDER/py-vibe && FOLDER/py-vibe/bin/pip install mistral-vibe
    python3.12 -m venv FOLDER/py-mini && FOLDER/py-mini/bin/pip install mini-swe-agent

Each runs with a home of its own, a key that means nothing, and reports and updates switched off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model_server import MODEL, Call

Write = Callable[..., Call]


@dataclass(frozen=True)
class RivalAgent:
    """One agent.

    Attributes:
        name: What the table calls it.
        words: The command, with `{prompt}`; `{bin}` is its folder of programs.
        anything: What is added so that nothing asks.
        shell: Writes the call of a command.
        read: Writes the call that reads a file, or lines of it.
        search: Writes the call of a search.
        tree: Writes the call that lists all files.
        edit: Writes the call that replaces a text.
        settings: Files below its home; `{url}` is the stub's address with `/v1`.
        folder: The folder below that of all rivals where its programs are.
        background: Calls that start, look after and end a command in the background.
        last: The calls that end a run; none: an answer without calls.
    """

    name: str
    words: tuple[str, ...]
    anything: tuple[str, ...]
    shell: Write
    read: Write
    search: Write
    tree: Write
    edit: Write
    settings: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = ""
    background: tuple[str, ...] = ()
    last: tuple[Call, ...] = ()

    def find(self, rivals: Path) -> str:
        """Return the folder of its programs; "" if it is not installed."""
        folder = rivals / self.folder
        program = self.words[0].removeprefix("{bin}/")
        return str(folder) if (folder / program).exists() else ""

    def prepare(self, home: Path, url: str) -> None:
        """Write its settings."""
        for name, text in self.settings.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text.replace("{url}", url))


def _fill(names: dict[str, str], **values: Any) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items() if value is not None}


def _shell(tool: str, name: str = "command", **more: Any) -> Write:
    return lambda text: (tool, {name: text, **more})


def _cat(shell: Write) -> Write:
    def read(path: str, lines: tuple[int, int] | None = None) -> Call:
        return shell(f"sed -n '{lines[0]},{lines[1]}p' {path}" if lines else f"cat {path}")

    return read


def _by_offset(tool: str, path_name: str, first: int = 1) -> Write:
    def read(path: str, lines: tuple[int, int] | None = None) -> Call:
        values: dict[str, Any] = {path_name: path}
        if lines:
            values |= {"offset": lines[0] - 1 + first, "limit": lines[1] - lines[0] + 1}
        return tool, values

    return read


def _find(shell: Write) -> Write:
    return lambda: shell("find . -type f -not -path './.git/*'")


def _grep(shell: Write) -> Write:
    return lambda text: shell(f"grep -rn {text} .")


def _replace(tool: str, *names: str) -> Write:
    return lambda path, old, new: (tool, dict(zip(names, (path, old, new), strict=True)))


def _patch(path: str, old: str, new: str) -> Call:
    lines = ["*** Begin Patch", f"*** Update File: {path}", "@@", f"-{old}", f"+{new}"]
    return "apply_patch", "\n".join([*lines, "*** End Patch"])


_CODEX = _shell("exec_command", "cmd")
_BASH = _shell("bash")
_QWEN = _shell("run_shell_command", is_background=False)

RIVALS = (
    RivalAgent(
        "Codex",
        ("{bin}/codex", "exec", "{prompt}"),
        ("--dangerously-bypass-approvals-and-sandbox",),
        shell=_CODEX,
        read=_cat(_CODEX),
        search=lambda text: _CODEX(f"grep -rn {text} ."),
        tree=_find(_CODEX),
        edit=_patch,
        settings={
            ".codex/config.toml": "\n".join(
                [
                    'model = "gpt-5.5"',
                    'model_provider = "stub"',
                    "check_for_update_on_startup = false",
                    "[model_providers.stub]",
                    'name = "stub"',
                    'base_url = "{url}"',
                    'env_key = "OPENAI_API_KEY"',
                    'wire_api = "responses"',
                    "[analytics]",
                    "enabled = false",
                    "[features]",
                    "plugins = false",
                    "apps = false",
                ]
            )
        },
        folder="npm/node_modules/.bin",
        background=("start", "wait", "poll", "stop"),
    ),
    RivalAgent(
        "opencode",
        ("{bin}/opencode", "run", "{prompt}"),
        (),
        shell=_BASH,
        read=_by_offset("read", "filePath"),
        search=lambda text: ("grep", {"pattern": text}),
        tree=lambda: ("glob", {"pattern": "**/*"}),
        edit=_replace("edit", "filePath", "oldString", "newString"),
        settings={
            ".config/opencode/opencode.json": json.dumps(
                {
                    "provider": {
                        "stub": {
                            "npm": "@ai-sdk/openai-compatible",
                            "options": {"baseURL": "{url}", "apiKey": "x"},
                            "models": {
                                MODEL: {
                                    "limit": {"context": 400000, "output": 32000},
                                    "tool_call": True,
                                }
                            },
                        }
                    },
                    "model": f"stub/{MODEL}",
                    "small_model": f"stub/{MODEL}",
                    "share": "disabled",
                    "autoupdate": False,
                }
            )
        },
        folder="npm/node_modules/.bin",
        background=("start", "file"),
    ),
    RivalAgent(
        "Qwen Code",
        ("{bin}/qwen", "-p", "{prompt}"),
        ("--approval-mode", "yolo"),
        shell=_QWEN,
        read=_by_offset("read_file", "file_path", 0),
        search=lambda text: ("grep_search", {"pattern": text}),
        tree=lambda: ("glob", {"pattern": "**/*"}),
        edit=_replace("edit", "file_path", "old_string", "new_string"),
        settings={
            ".qwen/settings.json": json.dumps(
                {
                    "telemetry": {"enabled": False},
                    "privacy": {"usageStatisticsEnabled": False},
                    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
                    "security": {"auth": {"selectedType": "openai"}},
                    "model": {"name": MODEL},
                }
            )
        },
        folder="npm/node_modules/.bin",
        background=("start", "stop", "file"),
    ),
    RivalAgent(
        "pi",
        ("{bin}/pi", "-p", "--provider", "stub", "--model", MODEL, "{prompt}"),
        (),
        shell=_BASH,
        read=_by_offset("read", "path"),
        search=_grep(_BASH),
        tree=_find(_BASH),
        edit=lambda path, old, new: (
            "edit",
            {"path": path, "edits": [{"oldText": old, "newText": new}]},
        ),
        settings={
            ".pi/agent/models.json": json.dumps(
                {
                    "providers": {
                        "stub": {
                            "baseUrl": "{url}",
                            "api": "openai-completions",
                            "apiKey": "x",
                            "models": [
                                {
                                    "id": MODEL,
                                    "name": MODEL,
                                    "contextWindow": 400000,
                                    "maxTokens": 32000,
                                }
                            ],
                        }
                    }
                }
            ),
            ".pi/agent/settings.json": json.dumps(
                {
                    "defaultProvider": "stub",
                    "defaultModel": MODEL,
                    "enableInstallTelemetry": False,
                }
            ),
        },
        folder="npm/node_modules/.bin",
        background=("file",),
    ),
    RivalAgent(
        "vibe",
        ("{bin}/vibe", "-p", "{prompt}", "--trust"),
        ("--agent", "auto-approve"),
        shell=_BASH,
        read=_by_offset("read_file", "path"),
        search=_grep(_BASH),
        tree=_find(_BASH),
        edit=_replace("edit", "file_path", "old_string", "new_string"),
        settings={
            ".vibe/config.toml": "\n".join(
                [
                    'active_model = "strong"',
                    "enable_telemetry = false",
                    "enable_update_checks = false",
                    "enable_auto_update = false",
                    "[experiments]",
                    "enable = false",
                    "[[providers]]",
                    'name = "stub"',
                    'api_base = "{url}"',
                    'api_key_env_var = "OPENAI_API_KEY"',
                    'api_style = "openai"',
                    'backend = "generic"',
                    "[[models]]",
                    f'name = "{MODEL}"',
                    'provider = "stub"',
                    'alias = "strong"',
                ]
            )
        },
        folder="py-vibe/bin",
        background=("file",),
    ),
    RivalAgent(
        "mini",
        ("{bin}/mini", "-m", f"openai/{MODEL}", "-t", "{prompt}"),
        ("-y", "--exit-immediately"),
        shell=_BASH,
        read=_cat(_BASH),
        search=_grep(_BASH),
        tree=_find(_BASH),
        edit=lambda path, old, new: _BASH(f"sed -i 's/{old}/{new}/' {path}"),
        folder="py-mini/bin",
        background=("file",),
        last=(("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),),
    ),
)

FERRULE = {
    "openai": RivalAgent(
        "Ferrule",
        ("{bin}/ferrule", "run", "-m", f"openai:{MODEL}", "{prompt}"),
        ("--mode", "bypassPermissions"),
        shell=_shell("run_command"),
        read=lambda path, lines=None: (
            "read_file",
            {"path": path} | ({"line_start": lines[0], "line_end": lines[1]} if lines else {}),
        ),
        search=lambda text: ("search_files", {"pattern": text}),
        tree=lambda: ("list_files", {}),
        edit=_replace("edit_file", "path", "old_string", "new_string"),
    ),
    "anthropic": RivalAgent(
        "Ferrule (Claude)",
        ("{bin}/ferrule", "run", "-m", "anthropic:claude-sonnet-5", "{prompt}"),
        ("--mode", "bypassPermissions"),
        shell=_BASH,
        read=lambda path, lines=None: (
            "str_replace_based_edit_tool",
            {"command": "view", "path": path} | ({"view_range": list(lines)} if lines else {}),
        ),
        search=lambda text: ("search_files", {"pattern": text}),
        tree=lambda: ("str_replace_based_edit_tool", {"command": "view", "path": "."}),
        edit=lambda path, old, new: (
            "str_replace_based_edit_tool",
            {"command": "str_replace", "path": path, "old_str": old, "new_str": new},
        ),
    ),
}
"""Ours, with the tools of two families."""


def make_environment(home: Path, address: str) -> dict[str, str]:
    """Return the environment of a run against a stub: keys that mean nothing, no reports."""
    return {
        # Some look for ripgrep; it comes with ours.
        "PATH": f"{os.environ['PATH']}:{Path(sys.executable).parent}",
        "PYENV_ROOT": os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv")),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "NO_PROXY": "127.0.0.1,localhost",
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "OPENAI_MODEL": MODEL,
        "ANTHROPIC_API_KEY": "x",
        "ANTHROPIC_BASE_URL": address,
        "DO_NOT_TRACK": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "QWEN_CODE_DISABLE_AUTO_UPDATE": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_CONFIGURED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
