"""Run commands that the kernel confines: what a child process may see, change and reach.

To callers: a `Sandbox` (one for each session, `sandbox.py`) starts a `Command` under a
`SandboxPolicy` and returns the running command. Everything that starts a program for a model, a
tool file, a hook or an MCP server goes through it; there is no second way to start a process.

Packages: `backends`, `inside`, `network`, `view`.
Modules: `command`, `launcher`, `policy`, `preview`, `running_command`, `sandbox`.
"""
