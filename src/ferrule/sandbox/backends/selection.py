"""Which sandbox backends this machine has, what each really enforces, and which one is used.

    backend = choose(policy, probe())     # or an error: what is missing, why, and the next step

Pure: `Probes` in, words out. A protection is `yes` only where its docstring is true as it stands;
what holds for contents but not for names, or for each process but not for all together, is
`partly`, and the mechanism's text says so. The first backend that enforces all that is required is
used; otherwise the one that misses least is what a person can agree to.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ferrule.sandbox.policy import AppliedProtections, Enforcement, Protection, SandboxPolicy

from .probes import Probes
from .reduced_protection import MissingProtection, MissingProtections, SandboxBackend

__all__ = [
    "MissingProtection",
    "MissingProtections",
    "SandboxBackend",
    "available_backends",
    "choose_backend",
    "find_required",
]

A, YES, PARTLY, NO = Protection, Enforcement.YES, Enforcement.PARTLY, Enforcement.NO
STARTABLE_BACKENDS = frozenset({"namespaces", "bubblewrap", "container", "landlock", "none"})
"""Backends that the launcher can start today. Others are described, not used."""

Facts = dict[Protection, tuple[Enforcement, str]]
"""For each protection how far it is enforced, and by what."""


def choose_backend(
    policy: SandboxPolicy, probes: Probes, *, startable: Collection[str] = STARTABLE_BACKENDS
) -> SandboxBackend:
    """Return the first backend that enforces everything that the policy requires.

    Args:
        policy: What commands may do.
        probes: What this machine can enforce.
        startable: Names of the backends that may be used.

    Raises:
        MissingProtections: There is none.
    """
    backends = [
        backend for backend in available_backends(policy, probes) if backend.name in startable
    ]
    required = find_required(policy)
    for backend in backends:
        if backend.protections.find_missing(required):
            continue
        if policy.preview and not _can_preview(backend, probes):
            continue
        return backend
    best = min(backends, key=lambda backend: len(backend.protections.find_missing(required)))
    missing = best.protections.find_missing(required)
    if not missing:
        why = _refusal(probes, "overlay")
        raise MissingProtections(
            (), best, detail=f"a preview needs a copy-on-write view of the workspace: {why}"
        )
    raise MissingProtections(
        tuple(_describe_missing(aspect, best, probes, policy) for aspect in missing), best
    )


def find_required(policy: SandboxPolicy) -> frozenset[Protection]:
    """Return the protections without which no command of a policy runs.

    Besides those that the policy names: where Ferrule itself lies in what commands can write, its
    code and the folders above it are held in place, for which names are judged before they are
    made.
    """
    held = policy.command_writable.held
    return policy.require | {A.NEW_NAMES} if held else policy.require


def available_backends(policy: SandboxPolicy, probes: Probes) -> tuple[SandboxBackend, ...]:
    """Return the backends of this machine, best first. The last one, `none`, is always there."""
    backends: list[SandboxBackend] = []
    if probes.platform == "linux":
        if probes.namespaces:
            backends.append(_describe_backend("namespaces", _namespaces(probes), policy, probes))
        if probes.bwrap and not _is_replaceable(probes.bwrap, policy):
            backends.append(
                _describe_backend("bubblewrap", _bubblewrap(probes, policy), policy, probes)
            )
        if probes.container is not None:
            backends.append(_describe_backend("container", _container(probes), policy, probes))
        if (
            probes.landlock_abi
            and probes.no_new_privileges
            and probes.seccomp_notify
            and probes.callers
        ):
            backends.append(_describe_backend("landlock", _landlock(probes), policy, probes))
    else:
        if probes.container is not None:
            backends.append(_describe_backend("container", _container(probes), policy, probes))
        if probes.seatbelt:
            backends.append(_describe_backend("seatbelt", _seatbelt(), policy, probes))
    return (*backends, _describe_backend("none", _none(probes), policy, probes))


def _describe_backend(
    name: str, facts: Facts, policy: SandboxPolicy, probes: Probes
) -> SandboxBackend:
    if policy.limits.memory is None:
        facts[A.MEMORY] = (NO, "the policy sets no limit")
    if policy.limits.processes is None:
        level = NO if facts[A.PROCESSES][0] is NO else PARTLY
        facts[A.PROCESSES] = (level, "the policy sets no limit")
    level, mechanism = facts[A.NETWORK]
    if policy.network and name in _WITHOUT_HOSTS and level is not NO:
        facts[A.NETWORK] = (level, f"{mechanism}; the named hosts cannot be reached")
    _apply_attack_results(name, facts, probes)
    levels = {aspect: facts[aspect][0] for aspect in Protection}
    mechanisms = {aspect: facts[aspect][1] for aspect in Protection}
    return SandboxBackend(name, AppliedProtections(name, levels, mechanisms))


UNTRIED = frozenset({"container", "seatbelt"})
"""Backends whose protections nobody has seen outside Linux: what attacks showed here they claim."""


def _apply_attack_results(name: str, facts: Facts, probes: Probes) -> None:
    """Take back what an attack on this machine came through, and claim what attacks have shown."""
    result = probes.attacks.get(name)
    if result is None:
        return
    for aspect in Protection:
        level, mechanism = facts[aspect]
        if str(aspect) in result.broken and level is YES:
            attack = result.broken[str(aspect)]
            facts[aspect] = (NO, f"{mechanism}; on this machine an attack came through: `{attack}`")
        elif name in UNTRIED and probes.platform != "linux" and str(aspect) in result.held:
            facts[aspect] = (YES, f"{mechanism}; shown on this machine")


_WITHOUT_HOSTS = ("landlock",)
"""Backends without a way for connections to named hosts."""


def _is_replaceable(path: str, policy: SandboxPolicy) -> bool:
    """Return whether commands could replace this program: such a one cannot confine them."""
    return policy.command_writable.contains(path)


def _can_preview(backend: SandboxBackend, probes: Probes) -> bool:
    return backend.name == "namespaces" and probes.overlay


def _namespaces(probes: Probes) -> Facts:
    view = "own mount namespace"
    return {
        A.FILE_READS: (YES, f"{view}: nothing else is there"),
        A.FILE_WRITES: (YES, view),
        A.NAMES: (YES, f"masks mounted over them{_mask_persistence(probes.user_namespaces)}"),
        A.NEW_NAMES: _new_names(probes),
        A.EXEC: (YES, "no_new_privs, no set-user-id files; other programs are not there"),
        A.NETWORK: (YES, "own network namespace"),
        A.UNIX_SOCKETS: (YES, "own network namespace; sockets with a path are not there"),
        A.SIGNALS: (YES, "own process namespace"),
        A.MEMORY: _memory(probes),
        A.PROCESSES: _processes(probes),
    }


def _mask_persistence(locked: bool) -> str:
    """Describe how masks stay on a folder that is handed to another command.

    Such a folder outlives the view of the command that had it.
    """
    if locked:
        return ", locked to their folders"
    return "; no folder is handed on: unix sockets come in pairs only"


def _new_names(probes: Probes) -> tuple[Enforcement, str]:
    if probes.seccomp_notify:
        return YES, "creating calls are made by a supervisor (seccomp user notification)"
    return NO, "mounts cannot forbid a name that does not exist; no seccomp user notification"


def _memory(probes: Probes) -> tuple[Enforcement, str]:
    if probes.cgroup:
        return YES, f"cgroup {probes.cgroup}, for all processes of a session's commands together"
    return PARTLY, "RLIMIT_DATA, for each process"


def _processes(probes: Probes) -> tuple[Enforcement, str]:
    ends = "their namespace ends with the command"
    if probes.cgroup:
        return YES, f"cgroup {probes.cgroup}; {ends}"
    if probes.root or not probes.user_namespaces:
        return PARTLY, f"no limit that holds for root; {ends}"
    return YES, f"RLIMIT_NPROC in an own user namespace; {ends}"


def _bubblewrap(probes: Probes, policy: SandboxPolicy) -> Facts:
    return {
        A.FILE_READS: (YES, "bubblewrap: own mount namespace"),
        A.FILE_WRITES: (YES, "bubblewrap: own mount namespace"),
        A.NAMES: (YES, f"bubblewrap: masks bound over them{_mask_persistence(probes.bwrap_locks)}"),
        A.NEW_NAMES: _new_names_in_bubblewrap(probes, policy),
        A.EXEC: (YES, "bubblewrap: no_new_privs, no set-user-id files"),
        A.NETWORK: (YES, "bubblewrap: own network namespace"),
        A.UNIX_SOCKETS: (
            YES,
            "bubblewrap: own network namespace; sockets with a path are not there",
        ),
        A.SIGNALS: (YES, "bubblewrap: own process namespace"),
        A.MEMORY: _memory(probes),
        A.PROCESSES: _processes_in_bubblewrap(probes),
    }


def _processes_in_bubblewrap(probes: Probes) -> tuple[Enforcement, str]:
    if probes.cgroup:
        return YES, f"cgroup {probes.cgroup}; their namespace ends with the command"
    return (
        PARTLY,
        "none outlives the command (own process namespace); RLIMIT_NPROC counts all processes of "
        "the user",
    )


def _new_names_in_bubblewrap(probes: Probes, policy: SandboxPolicy) -> tuple[Enforcement, str]:
    if not probes.bwrap_notify:
        why = _refusal(probes, "bwrap_notify", "no seccomp user notification")
        return (
            NO,
            "bubblewrap cannot forbid a name that does not exist, and no mediator of ours can "
            f"run in it: {why}",
        )
    if _is_replaceable(probes.python, policy):
        return NO, f"the mediator runs on `{probes.python}`, which commands could replace"
    return YES, "creating calls are made by a process of ours inside (seccomp user notification)"


def _container(probes: Probes) -> Facts:
    engine = probes.container
    assert engine is not None
    how = f"container ({Path(engine.program).name})"
    new_names = (YES, "creating calls are made by a process of ours inside (seccomp notification)")
    if not engine.notify:
        new_names = (NO, f"mounts cannot forbid a name that does not exist; {engine.why}")
    masks = "masks mounted over them; no folder is handed on: unix sockets come in pairs only"
    facts: Facts = {
        A.FILE_READS: (YES, f"{how}: an image, and the workspace"),
        A.FILE_WRITES: (YES, f"{how}: all but the workspace is read-only"),
        A.NAMES: (YES, f"{how}: {masks}"),
        A.NEW_NAMES: new_names,
        A.EXEC: (YES, f"{how}: no_new_privs, no capabilities; programs are the image's"),
        A.NETWORK: (YES, f"{how}: own network namespace"),
        A.UNIX_SOCKETS: (YES, f"{how}: own network namespace; sockets with a path are masked"),
        A.SIGNALS: (YES, f"{how}: own process namespace, one for a session's commands"),
        A.MEMORY: (PARTLY, "RLIMIT_DATA, for each process"),
        A.PROCESSES: (
            PARTLY,
            "none outlives the container; "
            + ("no limit that holds for root" if probes.root else "RLIMIT_NPROC counts the user's"),
        ),
    }
    if engine.limits:
        facts[A.MEMORY] = (YES, f"{how}: for all commands of a session together")
        facts[A.PROCESSES] = (YES, f"{how}: for all commands of a session together")
    if probes.platform == "linux":
        return facts
    return {
        aspect: (PARTLY if level is YES else level, f"{mechanism}; never tried on this system")
        for aspect, (level, mechanism) in facts.items()
    }


_SCOPED_ABI = 6
"""The Landlock ABI that confines signals and abstract sockets (landlock(7))."""


def _landlock(probes: Probes) -> Facts:
    landlock = f"Landlock (ABI {probes.landlock_abi})"
    mediated = (
        "a supervisor that opens and changes every file for the command (seccomp user notification)"
    )
    if probes.landlock_abi >= _SCOPED_ABI:
        signals = f"{landlock}: signals and tracing; that processes exist can be seen"
    else:
        signals = (
            f"{landlock}: tracing only; processes of the user can be signalled (to prevent that "
            f"needs ABI {_SCOPED_ABI})"
        )
    return {
        A.FILE_READS: (
            PARTLY,
            f"{landlock}: contents; that other files exist, and their sizes, can be seen",
        ),
        A.FILE_WRITES: (YES, f"{landlock}; modes, owners and times by {mediated}"),
        A.NAMES: (PARTLY, f"{mediated}; that the names exist, and their sizes, can be seen"),
        A.NEW_NAMES: (YES, "creating calls are made by a supervisor (seccomp user notification)"),
        A.EXEC: (YES, f"{landlock} and no_new_privs"),
        A.NETWORK: (YES, "a seccomp filter that leaves only unix sockets, not even loopback"),
        A.UNIX_SOCKETS: (
            YES,
            "a seccomp filter: sockets can be paired or listen, but reach nothing by name",
        ),
        A.SIGNALS: (PARTLY, signals),
        A.MEMORY: _memory(probes),
        A.PROCESSES: (PARTLY, f"{_process_limit(probes)}; leftover processes are found and ended"),
    }


def _process_limit(probes: Probes) -> str:
    if probes.cgroup:
        return f"cgroup {probes.cgroup}"
    if probes.root:
        return "no limit that holds for root"
    return "RLIMIT_NPROC counts all processes of the user"


def _seatbelt() -> Facts:
    untried = "by a Seatbelt profile that was never tried on a Mac"
    facts: Facts = dict.fromkeys(Protection, (PARTLY, untried))
    facts[A.MEMORY] = (NO, "macOS does not limit memory")
    facts[A.PROCESSES] = (PARTLY, "RLIMIT_NPROC; leftover processes are found and ended")
    return facts


_WINDOWS = (
    "not confined: Windows offers job objects, which only end processes, and Ferrule does not "
    "use them yet"
)
"""For every protection on Windows, where nothing confines commands.

A job object ends a command together with what it started and can limit its memory and processes.
It does nothing else: files, the network, other programs' windows and the registry are as open to
the command as to the person. Even that is not set up yet, because Ferrule starts programs with a
fork server (`inside`), which Windows cannot run.
"""


def _none(probes: Probes) -> Facts:
    facts: Facts = dict.fromkeys(Protection, (NO, "not confined"))
    facts[A.PROCESSES] = (NO, "no limit; leftover processes are found and ended")
    if probes.platform == "win32":
        return dict.fromkeys(Protection, (NO, _WINDOWS))
    return facts


def _describe_missing(
    aspect: Protection, backend: SandboxBackend, probes: Probes, policy: SandboxPolicy
) -> MissingProtection:
    why = backend.protections.mechanisms.get(aspect, "")
    if backend.name == "none" and probes.platform == "linux":
        why = f"no namespaces: {_refusal(probes, 'namespaces')}"
    held = policy.command_writable.held
    if aspect is A.NEW_NAMES and held:
        why = f"{why}; Ferrule itself runs from `{held[0]}`, which commands could replace"
        step = "install Ferrule apart from the project: `uv tool install ferrule`"
        return MissingProtection(aspect, why, step)
    return MissingProtection(aspect, why, _suggest_step(aspect, backend, probes))


def _refusal(probes: Probes, name: str, otherwise: str = "this kernel refuses them") -> str:
    return probes.why.get(name, otherwise)


def _suggest_step(aspect: Protection, backend: SandboxBackend, probes: Probes) -> str:
    if probes.platform == "win32":
        return "work in WSL: `wsl --install`, then install and run Ferrule there"
    if probes.platform != "linux" and backend.name in UNTRIED:
        return "`ferrule doctor --attack` tries it here, and what held is claimed from then on"
    if probes.platform != "linux":
        return (
            "`ferrule doctor --container` has commands run in containers of Docker or Podman; or "
            f"take `{aspect}` out of `sandbox.require`"
        )
    if aspect in (A.MEMORY, A.PROCESSES) and backend.name != "none" and not probes.cgroup:
        return (
            "run Ferrule in a cgroup of its own (`systemd-run --user --scope -p Delegate=yes "
            "ferrule …`)"
        )
    if aspect is A.NEW_NAMES and backend.name == "namespaces":
        return "use Linux 5.9 or later, and let the container's filter pass `seccomp`"
    return suggest_namespaces_step(probes)


def suggest_namespaces_step(probes: Probes) -> str:
    """Return what would let this user make namespaces, by what the kernel answered."""
    refusal = probes.why.get("namespaces", "")
    if "ENOSPC" in refusal:
        return "user namespaces are switched off: `sysctl user.max_user_namespaces=15000`"
    if "ENOSYS" in refusal or "unshare(user): EINVAL" in refusal:
        return "this kernel has no user namespaces: use one that is built with them"
    if "EPERM" in refusal and "unshare(user)" in refusal:
        return (
            "user namespaces are switched off: `sysctl kernel.unprivileged_userns_clone=1`, "
            "in a container `--security-opt seccomp=unconfined`; or install bubblewrap"
        )
    return (
        "user namespaces are restricted: `sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0`, or install bubblewrap"
    )
