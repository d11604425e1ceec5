"""What keeps tools inside: workspace, secret names, rules and approvals, command analysis, sandbox. Knows nothing of models."""
