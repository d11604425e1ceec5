"""Commands that the kernel holds: what a child process may see, change and reach.

From the public side: a `Sandbox` (one for each session, `sandbox.py`) starts a `Command` under a
`Policy` and gives back a `Running`. Everything that starts a program for a model, a tool file, a
hook or an MCP server goes through it; there is no second way to a process.

Packages: `backends`, `inside`, `network`, `view`.
Modules: `command`, `launcher`, `policy`, `preview`, `running_command`, `sandbox`.
"""
