"""Have sandbox backends know what `ferrule doctor` found out on this machine.

With `--attack`: which attacks were held. With `--container`: which engine runs containers.
"""

from __future__ import annotations

from ferrule.core.errors import FerruleError
from ferrule.permissions.provenance import CommandWritable
from ferrule.sandbox.backends.container_engine import ContainerEngine
from ferrule.sandbox.backends.probes import AttackResult, use_attack_results, use_container
from ferrule.storage.attack_results import read_attack_results
from ferrule.storage.container_record import read_container_record


def apply_sandbox_findings() -> None:
    """Read what was found here, for every sandbox that this process makes from now on."""
    use_attack_results(
        {
            name: AttackResult(frozenset(shown.get("held", ())), dict(shown.get("broken", {})))
            for name, shown in read_attack_results().items()
        }
    )
    apply_container_record()


def apply_container_record() -> None:
    """Offer the container backend, if its image was built and is the one of this version."""
    record = read_container_record()
    if not record:
        use_container(None)
        return
    try:
        use_container(ContainerEngine.from_record(record, CommandWritable.from_current_folder()))
    except FerruleError as error:
        use_container(None, f"{error.detail}; {error.hint}" if error.hint else error.detail)
    except (KeyError, TypeError):
        use_container(None, "its record cannot be read; `ferrule doctor --container` writes it")
