"""Report for `ferrule doctor` how the sandbox protects commands on this machine.

The first finding names the sandbox backend. Then there is one for each protection,
`sandbox.<aspect>`, whose detail begins with `yes`, `partly` or `no` and says by what mechanism. The
report says exactly what `choose` bases its decision on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ferrule.sandbox.backends.probes import Probes
from ferrule.sandbox.backends.reduced_protection import MissingProtections, SandboxMode
from ferrule.sandbox.backends.selection import (
    MissingProtection,
    SandboxBackend,
    available_backends,
    choose_backend,
)
from ferrule.sandbox.policy import Enforcement, Protection, SandboxPolicy
from ferrule.sandbox.view.description import describe_view

from .container import report_container
from .findings import Finding


def check_required(
    policy: SandboxPolicy, probes: Probes, mode: SandboxMode, also: Iterable[Protection] = ()
) -> None:
    """Raise MissingProtections if commands lack a protection that the policy or `also` requires."""
    required = frozenset(also)
    full_policy = replace(policy, require=policy.require | required)
    if mode != "off":
        choose_backend(full_policy, probes)
        return
    backend = available_backends(full_policy, probes)[-1]
    why = "`sandbox.mode: off`: commands run with all the rights you have"
    step = "set `sandbox.mode` to `ask` or `required`"
    missing = (
        MissingProtection(aspect, why, step)
        for aspect in backend.protections.find_missing(required)
    )
    raise MissingProtections(tuple(missing), backend)


def report_sandbox(policy: SandboxPolicy, probes: Probes, mode: SandboxMode) -> Iterator[Finding]:
    """Report what protects commands under this policy on this machine, one finding each."""
    if mode == "off":
        yield Finding(
            "sandbox",
            "note",
            "switched off (`sandbox.mode: off`): commands run with all the rights you have",
        )
        return
    try:
        backend = choose_backend(policy, probes)
    except MissingProtections as gap:
        backend = gap.backend
        yield _report_missing(gap, mode)
    else:
        yield Finding("sandbox", "ok", f"commands run in the sandbox backend `{backend.name}`")
    yield from _report_aspects(backend, policy)
    yield from _report_own_code(backend, policy)
    yield from report_container(probes)
    if backend.name == "namespaces" and probes.overlay:
        yield Finding(
            "sandbox.preview",
            "ok",
            "yes: a command can be tried on a copy-on-write view (overlayfs)",
        )
    else:
        why = probes.why.get("overlay", "it needs the backend `namespaces`")
        yield Finding(
            "sandbox.preview", "note", f"no: changes cannot be shown before they are made ({why})"
        )


def _report_own_code(backend: SandboxBackend, policy: SandboxPolicy) -> Iterator[Finding]:
    """Report whether commands can change Ferrule itself, where it lies in what they can write."""
    held = policy.command_writable.held
    if not held:
        return
    places = ", ".join(f"`{place}`" for place in held)
    if backend.protections.find_missing(frozenset({Protection.NEW_NAMES})):
        detail = (
            f"no: Ferrule itself runs from {places}, which commands could replace; install it "
            "apart from the project (`uv tool install ferrule` or `pipx install ferrule`)"
        )
        yield Finding("sandbox.own_code", "bad", detail)
        return
    detail = f"yes: Ferrule itself runs from {places}, which is read-only for commands and tools"
    yield Finding("sandbox.own_code", "ok", detail)


def report_view(policy: SandboxPolicy, mode: SandboxMode) -> Iterator[Finding]:
    """Report what commands see of this machine, and why: a finding for each place."""
    if mode == "off":
        yield Finding("sandbox", "note", "switched off (`sandbox.mode: off`): they see everything")
        return
    for shown in describe_view(policy):
        level = "note" if shown.access == "none" else "ok"
        access = "not shown" if shown.access == "none" else shown.access
        yield Finding(access, level, f"{shown.path}  ({shown.origin}: {shown.reason})")


def _report_missing(gap: MissingProtections, mode: SandboxMode) -> Finding:
    missing = ", ".join(str(one.protection) for one in gap.missing)
    consequence = "you are asked once, and with no approver available, commands are refused"
    if mode == "required":
        consequence = "commands are refused"
    hint = f"; to change it: {gap.hint}" if gap.hint else ""
    detail = (
        f"required protection missing: {missing}; the sandbox backend here is "
        f"`{gap.backend.name}`; "
        f"{consequence}{hint}"
    )
    return Finding("sandbox", "bad" if mode == "required" else "note", detail)


def _report_aspects(backend: SandboxBackend, policy: SandboxPolicy) -> Iterator[Finding]:
    for aspect in Protection:
        holds = backend.protections.enforcement.get(aspect, Enforcement.NO)
        mechanism = backend.protections.mechanisms.get(aspect, "")
        is_full = holds is Enforcement.YES
        note = "" if is_full or aspect in policy.require else " (not required)"
        yield Finding(
            f"sandbox.{aspect}", "ok" if is_full else "note", f"{holds}{note}: {mechanism}"
        )
