"""Which settings only restrict: they hold from a repository that nobody trusts.

Of the settings that a repository may set at all (`Setting.project`), those in `RESTRICTING` can
only narrow what a run may do, in the way that `Setting.project` says, and hold at once. All others
wait for trust.
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
