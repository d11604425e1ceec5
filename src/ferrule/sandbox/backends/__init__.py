"""Sandbox backends: which ones this machine has, what each enforces, and which one is used.

Modules: `bubblewrap`, `bubblewrap_arguments`, `cgroup`, `kernel_probe`, `landlock`, `namespaces`,
`probes`, `reduced_protection`, `seatbelt`, `selection`.
"""
