"""Load what files add to a run: tools, hooks, agents, skills and instructions.

Packages: `agents`, `builtins`, `checks`, `hooks`, `skills`, `starlark`, `tool_files`, `web`.
Modules: `extensions`, `front_matter`, `instructions`, `repository`, `untrusted_frames`.
"""
