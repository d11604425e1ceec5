"""Ways to hold a command: which of them this machine has, what each really holds, and the one that
is taken.

Modules: `bubblewrap`, `bubblewrap_arguments`, `cgroup`, `kernel_probe`, `landlock`,
`missing_protection`, `namespaces`, `probes`, `seatbelt`, `selection`, `windows`.
"""
