"""What runs outside our process, beside a command: fork server, supervisors, pid 1 of a sandbox.

`server.py` is started once for each sandbox, by `launcher.py`, as a bare interpreter that knows
this folder and the standard library only: files here import each other relatively and nothing else
of the package. They load little (no `re`, `typing`, `dataclasses` …), because every fork copies
what the server has in memory.

Packages: `container`, `kernel`, `mediator`.
Modules: `bubblewrap_supervisor`, `command_start`, `mediated_command`, `mediated_supervisor`,
`namespace_supervisor`, `pid1`, `process_tree`, `protocol`, `server`, `session`, `supervision`,
`view_template`.
"""
