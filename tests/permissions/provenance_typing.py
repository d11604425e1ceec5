"""What does not type-check, since it may come from a command. Read by `test_provenance_typing.py`.

Each line that must be refused says so by a suppression that would be unnecessary otherwise.
"""

from __future__ import annotations

from pathlib import Path

from ferrule.permissions.provenance import (
    CommandWritable,
    Origin,
    TrustedPath,
    TrustedProgram,
    find_program,
    trust_path,
)
from ferrule.sandbox.command import TrustedCommand
from ferrule.sandbox.view.openings import OpenedFolder, Openings
from ferrule.sandbox.view.toolchains import ReadOnlyBind

writable = CommandWritable.from_folders("/home/p/work")
program = find_program("git", "/usr/bin", writable)
place = trust_path("/usr", Origin.MACHINE, writable, reason="a system folder")


def sink(data: bytes) -> bool:
    return bool(data)


# What is made by the two functions is taken.
TrustedCommand(("git",), program, 3, {}, sink)
ReadOnlyBind(place)
OpenedFolder(place, "read")
trust_path("/usr", Origin.PERSON, writable, reason="named")

# A path, a place and a program that anybody could have written are not.
TrustedCommand(("git",), "/usr/bin/git", 3, {}, sink)  # pyright: ignore[reportArgumentType]
TrustedCommand(("git",), place, 3, {}, sink)  # pyright: ignore[reportArgumentType]
TrustedCommand(("git",), Path("/usr/bin/git"), 3, {}, sink)  # pyright: ignore[reportArgumentType]
ReadOnlyBind("/usr")  # pyright: ignore[reportArgumentType]
OpenedFolder("/usr", "read")  # pyright: ignore[reportArgumentType]
Openings("/home/p/work", (), writable)  # pyright: ignore[reportArgumentType]
shown: TrustedPath = "/usr"  # pyright: ignore[reportAssignmentType]
started: TrustedProgram = place  # pyright: ignore[reportAssignmentType]
trust_path("/usr", Origin.REPOSITORY, writable, reason="x")  # pyright: ignore[reportArgumentType]
trust_path("/usr", Origin.COMMANDS, writable, reason="x")  # pyright: ignore[reportArgumentType]
TrustedPath._make("/usr", Origin.MACHINE, "x")  # pyright: ignore[reportPrivateUsage]
