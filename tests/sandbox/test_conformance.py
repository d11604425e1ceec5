"""Every backend that can be started here runs the suite of a sandbox."""

from __future__ import annotations

import pytest

from containers import use_container_engine
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import STARTABLE_BACKENDS, available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.testing.sandbox_conformance import SandboxConformance


def on(backend: str, policy: SandboxPolicy) -> Sandbox:
    refused = use_container_engine() if backend == "container" else ""
    found = next((one for one in available_backends(policy, probe()) if one.name == backend), None)
    if found is None or backend not in STARTABLE_BACKENDS:
        pytest.skip(f"this machine cannot start `{backend}`: {refused or dict(probe().why)}")
    return Sandbox(policy, backend=found)


class TestNamespaces(SandboxConformance):
    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        return on("namespaces", policy)


class TestBubblewrap(SandboxConformance):
    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        return on("bubblewrap", policy)


class TestContainer(SandboxConformance):
    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        return on("container", policy)


class TestLandlock(SandboxConformance):
    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        return on("landlock", policy)


class TestNone(SandboxConformance):
    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        return on("none", policy)
