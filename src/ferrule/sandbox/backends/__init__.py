"""Sandbox backends: which ones this machine has, what each enforces, and which one is used.

Modules: `bubblewrap`, `bubblewrap_arguments`, `cgroup`, `kernel_probe`, `landlock`,
`missing_protection`, `namespaces`, `probes`, `seatbelt`, `selection`.
"""
