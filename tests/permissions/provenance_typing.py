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
from ferrule.storage.settings.merge import MergedSettings
from ferrule.storage.settings.mistakes import Mistakes
from ferrule.storage.settings.settings import read_trusted
from ferrule.storage.settings.values import (
    OwnEntries,
    TrustedEntries,
    read_flags,
    read_own_file,
    read_tree,
)
from ferrule.storage.settings.yaml_tree import parse_yaml
from ferrule.storage.trust import TrustStore

writable = CommandWritable.from_folders("/home/p/work")
program = find_program("git", "/usr/bin", writable)
place = trust_path("/usr", Origin.MACHINE, writable, reason="a system folder")


def sink(data: bytes) -> bool:
    return bool(data)


# What is made by these functions is taken.
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
TrustedPath("/usr")  # pyright: ignore[reportArgumentType]
TrustedProgram("/usr/bin/git")  # pyright: ignore[reportArgumentType]

# Settings loosen a rule if the person wrote them, or trusts the repository that brings them.
mistakes = Mistakes()
merged = MergedSettings()
merged.add_own(read_own_file(b"", Path("/home/p/ferrule.yaml"), mistakes))
merged.add_own(read_flags({}, mistakes))
merged.add_trusted(read_trusted(Path("/work"), TrustStore().read("/work"), mistakes))
found = read_tree(parse_yaml(b"", "/work/.ferrule/ferrule.yaml"))
merged.add_restrictions(found)

merged.add_own(found)  # pyright: ignore[reportArgumentType]
merged.add_trusted(found)  # pyright: ignore[reportArgumentType]
merged.add_own(read_trusted(Path("/work"), TrustStore().read("/work"), mistakes))  # pyright: ignore[reportArgumentType]
OwnEntries(found)  # pyright: ignore[reportArgumentType]
TrustedEntries(found)  # pyright: ignore[reportArgumentType]
OwnEntries._make("project", found)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
