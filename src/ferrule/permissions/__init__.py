"""Permissions: what a tool call may do.

Knows nothing of models, nor of how the kernel enforces a policy (`sandbox`).

Evaluating rules:
    gate                decides about a call: allow, ask or deny, and why
    rules               parses permission rules and checks them for mistakes
    rule_matching       whether a rule matches what a call touches
    call_needs          what a call touches, worked out from its arguments
    denied_names        deny rules for paths, applied where files are opened
    protected_names     names that no tool may read or write
    safe_mode           the programs that may run at all

Approvals:
    approvals           what a person is asked and answers; approvers
    grants              the rules that a person granted
    grant_proposals     the rules that a person is offered

Secrets and environment:
    redaction           removes secrets from what others see
    secret_patterns     what secrets look like
    child_environment   the environment of child processes
    variables           variables that a call sets for a command

Packages:
    commands            analysis of shell commands: parts, paths, risk labels
    filesystem          the workspace: files opened beneath its root
"""
