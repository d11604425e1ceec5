"""Sandbox backends: which ones this machine has, what each enforces, and which one is used.

Modules: `bubblewrap`, `bubblewrap_arguments`, `cgroup`, `container`, `container_arguments`,
`container_engine`, `container_image`, `kernel_probe`, `landlock`, `namespaces`, `probes`,
`reduced_protection`, `seatbelt`, `selection`.
"""
