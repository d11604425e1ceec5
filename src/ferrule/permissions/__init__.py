"""What a call may do: rules, the gate, approvals, protected names and redaction.

Knows nothing of models, and nothing of how the kernel enforces a policy (`sandbox`).

Packages: `commands`, `filesystem`.
Modules: `approval_digest`, `approvals`, `call_needs`, `child_environment`, `denied_names`,
`gate`, `grant_proposals`, `grants`, `protected_names`, `redaction`, `rule_matching`, `rules`,
`safe_mode`, `secret_patterns`, `variables`.
"""
