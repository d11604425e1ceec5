"""The ladder: which ways to hold commands this machine has, what each really holds, and which one
is taken.

    rung = choose(policy, probe())        # or SandboxGap: what is missing, why, and the next step

Pure: `Probes` in, words out. `holds` is `YES` only where the docstring of the aspect is true as it
stands; what holds for contents but not for names, or for each process but not for all together, is
`PARTLY`, and `how` says so. The first rung that holds all that is required is taken; otherwise the
one with the fewest gaps is what a person can agree to.

sandlock (a package of its own) is found and named, but not used yet: on the kernels it needs, our
own rungs hold the same.
"""

from __future__ import annotations

from collections.abc import Collection

from ferrule.sandbox.policy import Applied, Aspect, Holds, Policy

from .missing_protection import Missing, Rung, SandboxGap
from .probes import Probes
from .windows import NOT_CONFINED

__all__ = ["Missing", "Rung", "SandboxGap", "choose", "ladder"]

A, YES, PARTLY, NO = Aspect, Holds.YES, Holds.PARTLY, Holds.NO
STARTS = frozenset({"namespaces", "bubblewrap", "landlock", "none"})
"""Rungs that the launcher can start today. Others are described, not chosen."""

Facts = dict[Aspect, tuple[Holds, str]]
"""For each aspect how far, and by what."""


def choose(policy: Policy, probes: Probes, *, starts: Collection[str] = STARTS) -> Rung:
    """The first rung that holds all that the policy requires. Raises SandboxGap if there is
    none.
    """
    rungs = [rung for rung in ladder(policy, probes) if rung.name in starts]
    for rung in rungs:
        if not rung.applied.missing(policy.require):
            if policy.preview and not _previews(rung, probes):
                continue
            return rung
    best = min(rungs, key=lambda rung: len(rung.applied.missing(policy.require)))
    missing = tuple(
        _missing(aspect, best, probes) for aspect in best.applied.missing(policy.require)
    )
    if not missing:
        raise SandboxGap(
            (),
            best,
            detail=(
                f"a preview needs a copy-on-write view of the workspace: {_why(probes, 'overlay')}"
            ),
        )
    raise SandboxGap(missing, best)


def ladder(policy: Policy, probes: Probes) -> tuple[Rung, ...]:
    """The rungs of this machine, best first. The last one, `none`, is always there."""
    found: list[Rung] = []
    if probes.platform == "linux":
        if probes.namespaces:
            found.append(_rung("namespaces", _namespaces(probes), policy))
        if probes.bwrap and not _below(probes.bwrap, policy):
            found.append(_rung("bubblewrap", _bubblewrap(probes, policy), policy))
        if (
            probes.landlock_abi
            and probes.no_new_privileges
            and probes.seccomp_notify
            and probes.callers
        ):
            found.append(_rung("landlock", _landlock(probes), policy))
    elif probes.platform == "darwin" and probes.seatbelt:
        found.append(_rung("seatbelt", _seatbelt(), policy))
    return (*found, _rung("none", _none(probes), policy))


def _rung(name: str, facts: Facts, policy: Policy) -> Rung:
    if policy.bounds.memory is None:
        facts[A.MEMORY] = (NO, "the policy sets no bound")
    if policy.bounds.processes is None:
        facts[A.PROCESSES] = (
            PARTLY if facts[A.PROCESSES][0] is not NO else NO,
            "the policy sets no bound",
        )
    if policy.network and name in _NO_HOSTS and facts[A.NETWORK][0] is not NO:
        facts[A.NETWORK] = (
            facts[A.NETWORK][0],
            f"{facts[A.NETWORK][1]}; the named hosts cannot be reached",
        )
    return Rung(
        name, Applied(name, {a: facts[a][0] for a in Aspect}, {a: facts[a][1] for a in Aspect})
    )


_NO_HOSTS = ("landlock",)
"""Rungs where nothing carries connections to named hosts."""


def _below(path: str, policy: Policy) -> bool:
    """A program that commands could have replaced does not hold them."""
    return path.startswith(str(policy.root).rstrip("/") + "/")


def _previews(rung: Rung, probes: Probes) -> bool:
    return rung.name == "namespaces" and probes.overlay


def _namespaces(probes: Probes) -> Facts:
    view = "own mount namespace"
    return {
        A.FILE_READS: (YES, f"{view}: nothing else is there"),
        A.FILE_WRITES: (YES, view),
        A.NAMES: (YES, f"masks mounted over them{_kept_on(probes.user_namespaces)}"),
        A.NEW_NAMES: _mediated(probes),
        A.EXEC: (YES, "no_new_privs, no set-user-id files; other programs are not there"),
        A.NETWORK: (YES, "own network namespace"),
        A.UNIX_SOCKETS: (YES, "own network namespace; sockets with a path are not there"),
        A.SIGNALS: (YES, "own process namespace"),
        A.MEMORY: _memory(probes),
        A.PROCESSES: _processes(probes),
    }


def _kept_on(locked: bool) -> str:
    """How masks stay on a folder that a command hands to another one and that outlives its view."""
    if locked:
        return ", locked to their folders"
    return "; no folder is handed on: unix sockets come in pairs only"


def _mediated(probes: Probes) -> tuple[Holds, str]:
    if probes.seccomp_notify:
        return YES, "creating calls are made by a supervisor (seccomp user notification)"
    return NO, "mounts cannot forbid a name that does not exist; no seccomp user notification"


def _memory(probes: Probes) -> tuple[Holds, str]:
    if probes.cgroup:
        return YES, f"cgroup {probes.cgroup}, for all processes of a session's commands together"
    return PARTLY, "RLIMIT_DATA, for each process"


def _processes(probes: Probes) -> tuple[Holds, str]:
    ends = "their namespace ends with the command"
    if probes.cgroup:
        return YES, f"cgroup {probes.cgroup}; {ends}"
    if probes.root or not probes.user_namespaces:
        return PARTLY, f"no bound that holds for root; {ends}"
    return YES, f"RLIMIT_NPROC in an own user namespace; {ends}"


def _bubblewrap(probes: Probes, policy: Policy) -> Facts:
    return {
        A.FILE_READS: (YES, "bubblewrap: own mount namespace"),
        A.FILE_WRITES: (YES, "bubblewrap: own mount namespace"),
        A.NAMES: (YES, f"bubblewrap: masks bound over them{_kept_on(probes.bwrap_locks)}"),
        A.NEW_NAMES: _mediated_in_bubblewrap(probes, policy),
        A.EXEC: (YES, "bubblewrap: no_new_privs, no set-user-id files"),
        A.NETWORK: (YES, "bubblewrap: own network namespace"),
        A.UNIX_SOCKETS: (
            YES,
            "bubblewrap: own network namespace; sockets with a path are not there",
        ),
        A.SIGNALS: (YES, "bubblewrap: own process namespace"),
        A.MEMORY: _memory(probes),
        A.PROCESSES: (YES, f"cgroup {probes.cgroup}; their namespace ends with the command")
        if probes.cgroup
        else (
            PARTLY,
            (
                "none outlives the command (own process namespace); RLIMIT_NPROC counts all of "
                "the user's"
            ),
        ),
    }


def _mediated_in_bubblewrap(probes: Probes, policy: Policy) -> tuple[Holds, str]:
    if not probes.bwrap_notify:
        why = _why(probes, "bwrap_notify", "no seccomp user notification")
        return (
            NO,
            (
                "bubblewrap cannot forbid a name that does not exist, and nothing of ours can "
                f"in it: {why}"
            ),
        )
    if _below(probes.python, policy):
        return NO, f"what mediates runs on `{probes.python}`, which commands could replace"
    return YES, "creating calls are made by a process of ours inside (seccomp user notification)"


_SCOPES = 6
"""The Landlock ABI that confines signals and abstract sockets (landlock(7))."""


def _landlock(probes: Probes) -> Facts:
    by = f"Landlock (ABI {probes.landlock_abi})"
    mediated = (
        "a supervisor that opens and changes every file for the command (seccomp user notification)"
    )
    scoped = probes.landlock_abi >= _SCOPES
    return {
        A.FILE_READS: (
            PARTLY,
            f"{by}: contents; that other files exist, and their sizes, can be seen",
        ),
        A.FILE_WRITES: (YES, f"{by}; modes, owners and times by {mediated}"),
        A.NAMES: (PARTLY, f"{mediated}; that the names exist, and their sizes, can be seen"),
        A.NEW_NAMES: (YES, "creating calls are made by a supervisor (seccomp user notification)"),
        A.EXEC: (YES, f"{by} and no_new_privs"),
        A.NETWORK: (YES, "a seccomp filter that leaves only unix sockets, not even loopback"),
        A.UNIX_SOCKETS: (
            YES,
            "a seccomp filter: sockets come in pairs or wait, and reach nothing by name",
        ),
        A.SIGNALS: (PARTLY, f"{by}: signals and tracing; that processes exist can be seen")
        if scoped
        else (
            PARTLY,
            (
                f"{by}: tracing only; processes of the user can be signalled (this needs ABI "
                f"{_SCOPES})"
            ),
        ),
        A.MEMORY: _memory(probes),
        A.PROCESSES: (PARTLY, f"{_counted(probes)}; what is left is looked for and ended"),
    }


def _counted(probes: Probes) -> str:
    if probes.cgroup:
        return f"cgroup {probes.cgroup}"
    return (
        "no bound that holds for root" if probes.root else "RLIMIT_NPROC counts all of the user's"
    )


def _seatbelt() -> Facts:
    untried = "by a Seatbelt profile that was never tried on a Mac"
    facts: Facts = dict.fromkeys(Aspect, (PARTLY, untried))
    facts[A.MEMORY] = (NO, "macOS bounds no memory")
    facts[A.PROCESSES] = (PARTLY, "RLIMIT_NPROC; what is left is looked for and ended")
    return facts


def _none(probes: Probes) -> Facts:
    facts: Facts = dict.fromkeys(Aspect, (NO, "not confined"))
    facts[A.PROCESSES] = (NO, "no bound; what is left is looked for and ended")
    if probes.platform == "win32":
        return dict.fromkeys(Aspect, (NO, NOT_CONFINED))
    return facts


# ---- what is missing, and what would change it


def _missing(aspect: Aspect, rung: Rung, probes: Probes) -> Missing:
    why = rung.applied.how.get(aspect, "")
    if rung.name == "none" and probes.platform == "linux":
        why = f"no namespaces: {_why(probes, 'namespaces')}"
    return Missing(aspect, why, _step(aspect, rung, probes))


def _why(probes: Probes, name: str, otherwise: str = "this kernel refuses them") -> str:
    return probes.why.get(name, otherwise)


def _step(aspect: Aspect, rung: Rung, probes: Probes) -> str:
    if probes.platform != "linux":
        return f"take `{aspect}` out of `sandbox.require`, or work in a Linux container"
    if aspect in (A.MEMORY, A.PROCESSES) and rung.name != "none" and not probes.cgroup:
        return (
            "run Ferrule in a cgroup of its own (`systemd-run --user --scope -p Delegate=yes "
            "ferrule …`)"
        )
    if aspect is A.NEW_NAMES and rung.name == "namespaces":
        return "use Linux 5.9 or later, and let the container's filter pass `seccomp`"
    return namespaces_step(probes)


def namespaces_step(probes: Probes) -> str:
    """What would let this user make namespaces, by what the kernel answered."""
    said = probes.why.get("namespaces", "")
    if "ENOSPC" in said:
        return "user namespaces are switched off: `sysctl user.max_user_namespaces=15000`"
    if "ENOSYS" in said or "unshare(user): EINVAL" in said:
        return "this kernel has no user namespaces: use one that is built with them"
    if "EPERM" in said and "unshare(user)" in said:
        return (
            "user namespaces are switched off: `sysctl kernel.unprivileged_userns_clone=1`, "
            "in a container"
            " `--security-opt seccomp=unconfined`; or install bubblewrap"
        )
    return (
        "user namespaces are restricted: `sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0`, or install bubblewrap"
    )
