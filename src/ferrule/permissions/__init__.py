"""Permissions: what a tool call may do.

Knows nothing of models, nor of how the kernel enforces a policy (`sandbox`).

Evaluating rules:
    rule_evaluation     decides about a call: allow, ask or deny, and why
    rules               parses permission rules and checks them for mistakes
    rule_matching       whether a rule matches what a call touches, and which ones could
    call_analysis       what a call touches, worked out from its arguments
    path_denials        deny rules for paths, applied where files are opened
    protected_names     names that no tool may read or write
    safe_mode           the programs that may run at all
    linked_places       places in a folder that the person's home leads to
    repositories        the git repository that a folder belongs to, and what its settings name
    provenance          where paths and programs come from, and whether commands can change them
    loaded_code         what a command line loads as code, and whether commands can write it
    installed_code      which installed Python code may be loaded into this process
    entry_points        what installed distributions offer, but for those that commands can write

Approvals:
    approvals           what a person is asked and answers; approvers
    approval_text       what a person has to see of a call, as text
    grants              the rules that a person granted
    grant_proposals     the rules that a person is offered

Secrets and environment:
    redaction           removes secrets from what others see
    secret_patterns     what secrets look like
    child_environment   the environment of child processes
    command_variables   variables that a call sets for a command

Packages:
    command_analysis    analysis of shell commands: parts, paths, risk labels
    filesystem          the workspace: files opened beneath its root
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .approvals import ApprovalAnswer, ApprovalRequest, Approver
    from .grants import Grants
    from .protected_names import DEFAULT_NAMES
    from .rule_evaluation import PermissionGate
    from .rules import RuleSet

__all__ = [
    "DEFAULT_NAMES",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "Grants",
    "PermissionGate",
    "RuleSet",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".grants": ("Grants",),
        ".approvals": (
            "ApprovalAnswer",
            "ApprovalRequest",
            "Approver",
        ),
        ".protected_names": ("DEFAULT_NAMES",),
        ".rule_evaluation": ("PermissionGate",),
        ".rules": ("RuleSet",),
    },
)
