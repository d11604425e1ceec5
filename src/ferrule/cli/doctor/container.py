"""`ferrule doctor --container`: build what commands run in, try it, and keep what that showed.

Also offers it: where an engine is installed and no image was built, the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrule.permissions.provenance import CommandWritable, ProgramNotFound
from ferrule.runtime.sandbox_findings import apply_container_record
from ferrule.sandbox.backends.container_engine import ENGINES, ContainerEngine, find_engine
from ferrule.sandbox.backends.container_image import build_image, try_engine
from ferrule.sandbox.backends.probes import Probes
from ferrule.storage.container_record import read_container_record, write_container_record

from .findings import Finding


def set_up_container(
    name: str, run_arguments: Sequence[str], build_arguments: Sequence[str]
) -> Iterator[Finding]:
    """Build the image with an engine, and have commands of this machine use it where it is needed.

    Args:
        name: The engine's name or path; empty for the first that is installed.
        run_arguments: Further arguments for its `run`.
        build_arguments: Further arguments for its `build`.

    Raises:
        ProgramNotFound: There is no such engine.
        ContainerUnusable: It refuses something that is needed.
    """
    writable = CommandWritable.from_current_folder()
    program = find_engine(name, writable)
    image = build_image(program, writable, build_arguments)
    engine = try_engine(ContainerEngine(program, image, tuple(run_arguments)), writable)
    write_container_record(engine.as_record())
    apply_container_record()
    yield Finding("sandbox.container", "ok", describe_engine(engine))


def report_container(probes: Probes) -> Iterator[Finding]:
    """Report which engine runs containers for commands, or that one could."""
    if probes.container is not None:
        yield Finding("sandbox.container", "ok", describe_engine(probes.container))
        return
    if read_container_record():
        why = probes.why.get("container", "it is not used here")
        yield Finding("sandbox.container", "note", f"no: {why}")
        return
    try:
        program = find_engine("", CommandWritable.from_current_folder())
    except ProgramNotFound:
        yield Finding("sandbox.container", "note", f"no: neither {' nor '.join(ENGINES)} is here")
        return
    yield Finding(
        "sandbox.container",
        "note",
        f"possible: {program} is here; `ferrule doctor --container` builds an image for commands",
    )


def describe_engine(engine: ContainerEngine) -> str:
    """Describe what containers of an engine do here."""
    differences = [
        text
        for is_missing, text in (
            (not engine.notify, f"new names are not judged ({engine.why})"),
            (not engine.limits, "memory and processes are bounded for each process alone"),
            (not engine.same_files, "a virtual machine lies in between"),
        )
        if is_missing
    ]
    rest = f"; {'; '.join(differences)}" if differences else ""
    return f"yes: containers of {engine.program}, image {engine.image[:19]}{rest}"
