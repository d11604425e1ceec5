"""Docker or Podman as this machine has it, with the image that it built and what a trial showed.

    engine = try_engine(build_image(program, writable), writable)      # container_image
    use_container(engine)                                              # probes

The image is started by the digest that the engine gave it: no name that could mean another image
by tomorrow.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.provenance import CommandWritable, Origin, TrustedProgram, find_program

ENGINES = ("docker", "podman")
IMAGE_FILE = Path(__file__).with_name("Containerfile")
"""What the image is built from."""


class ContainerUnusable(FerruleError):
    """An engine cannot run containers as commands need them; `detail` says what was refused."""

    code = "container_unusable"


@frozen
class ContainerEngine:
    """An engine, the image that it built, and what a trial showed.

    `arguments` are further ones of the person for `run`. `user` is the option by which files are
    ours inside. `limits`: it bounds memory and processes. `notify`: creating calls can be mediated
    in it. `same_files`: files have the same identity inside. `image` is a digest.
    """

    program: TrustedProgram
    image: str
    arguments: tuple[str, ...] = ()
    user: str = ""
    limits: bool = False
    notify: bool = False
    same_files: bool = False
    why: str = ""

    def as_record(self) -> dict[str, object]:
        """Return what `from_record` takes, for the state folder."""
        return {
            "engine": str(self.program),
            "image": self.image,
            "arguments": list(self.arguments),
            "user": self.user,
            "limits": self.limits,
            "notify": self.notify,
            "same_files": self.same_files,
            "why": self.why,
            "recipe": digest_recipe(),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], writable: CommandWritable) -> ContainerEngine:
        """Return the engine of a record.

        Raises:
            ContainerUnusable: The image was built from another file than the one that ships.
            ProgramNotFound: The engine is gone, or commands can write it.
        """
        if record["recipe"] != digest_recipe():
            raise ContainerUnusable(
                "the image of the sandbox backend `container` is of another version of Ferrule",
                hint="`ferrule doctor --container` builds it again",
            )
        path = record["engine"]
        return cls(
            find_program(path, "", writable, origin=Origin.PERSON, reason="its image was built"),
            record["image"],
            tuple(record["arguments"]),
            record["user"],
            record["limits"],
            record["notify"],
            record["same_files"],
            record["why"],
        )


def find_engine(name: str, writable: CommandWritable) -> TrustedProgram:
    """Return an engine by its name or path; an empty name: the first that is installed.

    Raises:
        ProgramNotFound: There is none, or commands can write it.
    """
    search_path = os.environ.get("PATH", os.defpath)
    if name:
        return find_program(name, search_path, writable, origin=Origin.PERSON, reason="named")
    for engine in ENGINES[:-1]:
        try:
            return find_program(engine, search_path, writable)
        except FerruleError:
            continue
    return find_program(ENGINES[-1], search_path, writable)


def digest_recipe() -> str:
    """Return the digest of the file that the image is built from."""
    return hashlib.sha256(IMAGE_FILE.read_bytes()).hexdigest()
