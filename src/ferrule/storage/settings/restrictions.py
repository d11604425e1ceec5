"""Which settings only restrict: they hold from a repository that nobody trusts.

Each setting that a repository may set at all (`Setting.project`) is in one of two tables. What is
in `RESTRICTING` can only narrow what a run may do, in the way that `Setting.project` says, and
holds at once. What is in `NOT_RESTRICTING` waits for trust; the text says why.
"""

from __future__ import annotations

from collections.abc import Mapping

RESTRICTING = frozenset(
    {
        "mode",
        "limits.max_turns",
        "limits.max_calls_per_turn",
        "limits.max_output_bytes",
        "limits.max_seconds",
        "limits.max_tokens",
        "limits.max_cost",
        "limits.max_calls",
        "limits.user_tokens",
        "limits.user_cost",
        "limits.tenant_tokens",
        "limits.tenant_cost",
        "limits.warn_at",
        "tools.enabled",
        "tools.allowed",
        "tools.denied",
        "tools.register",
        "permissions.deny",
        "permissions.ask",
        "permissions.reads",
        "reserved.extend",
        "secrets.extend",
        "commands.safe_mode",
        "commands.allowed_commands",
        "commands.run_timeout",
        "commands.shell",
        "sandbox.mode",
        "sandbox.require",
        "sandbox.network",
        "sandbox.memory",
        "sandbox.processes",
        "sandbox.file_size",
        "network.allowed_domains",
        "redaction.keys",
        "redaction.patterns",
        "artifacts.threshold",
        "models.*.tools_enabled",
        "models.*.max_turns",
        "models.*.max_calls_per_turn",
        "models.*.max_output_bytes",
    }
)

_PREFERENCE = "a preference: it says how something is done, not how much"
_MODEL = "chooses or instructs the model"
_PLUGIN = "adds tools, or switches off what the person's work may need"
_HIDES_OWN = "would switch off what the person wrote themselves"

NOT_RESTRICTING: Mapping[str, str] = {
    "permissions.allow": "allows calls",
    "tools.python": "runs code in Ferrule's own process",
    "plugins.files": _PLUGIN,
    "plugins.search": _PLUGIN,
    "plugins.commands": _PLUGIN,
    "plugins.git": _PLUGIN,
    "plugins.git.tools": _PLUGIN,
    "plugins.tasks": _PLUGIN,
    "plugins.clock": _PLUGIN,
    "plugins.typed": _PLUGIN,
    "plugins.index": _PLUGIN,
    "plugins.pictures": _PLUGIN,
    "plugins.code": _PLUGIN,
    "tools.profile": "may add tools",
    "tools.shapes": "may add tools",
    "tools.always_loaded": "may add tools to requests",
    "tools.entries": "may add tools to requests",
    "tools.tool_search": _PREFERENCE,
    "tools.search_mode": _PREFERENCE,
    "tools.search_budget": _PREFERENCE,
    "tools.defer_above": _PREFERENCE,
    "tools.errors": _PREFERENCE,
    "tools.fallback": _PREFERENCE,
    "tools.rereading": _PREFERENCE,
    "tools.parallel": _PREFERENCE,
    "tools.join": _PREFERENCE,
    "tools.required": "demands calls",
    "limits.on_limit": _PREFERENCE,
    "results": _PREFERENCE,
    "tool_mode": _PREFERENCE,
    "context.compact": _PREFERENCE,
    "context.share": _PREFERENCE,
    "context.keep": _PREFERENCE,
    "plugins.index.outline": _MODEL,
    "sandbox.git_hooks": "would switch off checks that the person's commits go through",
    "hooks.claude": "would switch off the person's own guards",
    "skills.enabled": _HIDES_OWN,
    "instructions.enabled": _HIDES_OWN,
    "instructions.max_bytes": _HIDES_OWN,
    "models.*.tool_mode": _PREFERENCE,
    "models.*.results": _PREFERENCE,
    "models.*.num_ctx": _MODEL,
    "models.*.temperature": _MODEL,
    "models.*.max_output_tokens": _MODEL,
    "models.*.thinking": _MODEL,
    "models.*.top_p": _MODEL,
    "models.*.top_k": _MODEL,
    "models.*.presence_penalty": _MODEL,
    "models.*.frequency_penalty": _MODEL,
    "models.*.stop": _MODEL,
    "models.*.logit_bias": _MODEL,
    "models.*.service_tier": _MODEL,
    "models.*.cache_key": _MODEL,
    "models.*.cache_control": _MODEL,
    "models.*.upload_media_from": _PREFERENCE,
    "models.*.seed": _MODEL,
    "models.*.timeout": _PREFERENCE,
}

NARROWER_CHOICES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "mode": {
        "default": frozenset({"plan", "dontAsk"}),
        "acceptEdits": frozenset({"default", "plan", "dontAsk"}),
        "auto": frozenset({"default", "plan", "dontAsk"}),
        "sandboxed": frozenset({"acceptEdits", "default", "plan", "dontAsk"}),
        "bypassPermissions": frozenset({"acceptEdits", "default", "plan", "dontAsk"}),
    },
    "permissions.reads": {"auto": frozenset({"ask"}), "allow": frozenset({"ask"})},
    "sandbox.mode": {"ask": frozenset({"required"}), "off": frozenset({"required"})},
}
"""For a choice that is in force, those that allow nothing which it does not. `plan` and `dontAsk`
each allow something that the other refuses.
"""


def restricts(key: str) -> bool:
    """Return whether a setting only restricts, by its key (also `models.<name>.<key>`)."""
    if key.startswith("models."):
        key = f"models.*.{key.rpartition('.')[2]}"
    return key in RESTRICTING
