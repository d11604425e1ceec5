"""Have sandbox backends claim what attacks on this machine have shown.

The attacks are those of `ferrule doctor --attack`.
"""

from __future__ import annotations

from ferrule.sandbox.backends.probes import AttackResult, use_attack_results
from ferrule.storage.attack_results import read_attack_results


def apply_attack_results() -> None:
    """Read what was shown here, for every sandbox that this process makes from now on."""
    use_attack_results(
        {
            name: AttackResult(frozenset(shown.get("held", ())), dict(shown.get("broken", {})))
            for name, shown in read_attack_results().items()
        }
    )
