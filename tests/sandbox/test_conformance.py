"""Every rung that can be started here runs the suite of a sandbox."""

from __future__ import annotations

import pytest

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import STARTS, ladder
from ferrule.sandbox.policy import Policy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.testing.sandbox_conformance import SandboxConformance


def on(rung: str, policy: Policy) -> Sandbox:
    found = next((one for one in ladder(policy, probe()) if one.name == rung), None)
    if found is None or rung not in STARTS:
        pytest.skip(f"this machine cannot start `{rung}`: {dict(probe().why)}")
    return Sandbox(policy, rung=found)


@pytest.mark.proves("sandbox.rung.conformance")
class TestNamespaces(SandboxConformance):
    def open_sandbox(self, policy: Policy) -> Sandbox:
        return on("namespaces", policy)


@pytest.mark.proves("sandbox.rung.conformance")
class TestBubblewrap(SandboxConformance):
    def open_sandbox(self, policy: Policy) -> Sandbox:
        return on("bubblewrap", policy)


@pytest.mark.proves("sandbox.rung.conformance")
class TestLandlock(SandboxConformance):
    def open_sandbox(self, policy: Policy) -> Sandbox:
        return on("landlock", policy)


@pytest.mark.proves("sandbox.rung.conformance")
class TestNone(SandboxConformance):
    def open_sandbox(self, policy: Policy) -> Sandbox:
        return on("none", policy)
