"""The kernel's interfaces: system calls, seccomp, Landlock, mounts, namespaces and control groups.

Modules: `bpf`, `cgroup_limits`, `landlock`, `landlock_rules`, `libc`, `mounts`, `namespaces`,
`proxy_ports`, `seccomp`, `system_calls`.
"""
