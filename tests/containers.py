"""The container backend in tests: an engine that runs containers here, or the reason why none does.

The image is one that `make lab NAME=container-image` (or `ferrule doctor --container`) built from
the file that ships now; no test builds or downloads one. `FERRULE_TEST_CONTAINER_ENGINE` names
another engine than the first one installed, `FERRULE_TEST_CONTAINER_ARGUMENTS` are further
arguments for `run`, which some machines need.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from functools import cache

from ferrule.core.errors import FerruleError
from ferrule.permissions.provenance import CommandWritable
from ferrule.sandbox.backends.container_engine import ContainerEngine, digest_recipe, find_engine
from ferrule.sandbox.backends.container_image import RECIPE_LABEL, try_engine
from ferrule.sandbox.backends.probes import use_container


def use_container_engine() -> str:
    """Have `probe` offer the container backend. Returns why it cannot, empty if it can."""
    found = find_container_engine()
    if isinstance(found, str):
        return found
    use_container(found)
    return ""


@cache
def find_container_engine() -> ContainerEngine | str:
    """Return an engine that was tried here, or why there is none."""
    writable = CommandWritable.from_current_folder()
    try:
        program = find_engine(os.environ.get("FERRULE_TEST_CONTAINER_ENGINE", ""), writable)
        label = f"label={RECIPE_LABEL}={digest_recipe()}"
        listed = subprocess.run(
            [program, "images", "--quiet", "--no-trunc", "--filter", label],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        images = listed.stdout.split()
        if not images:
            return f"`{program}` has no image of this version: `make lab NAME=container-image`"
        arguments = shlex.split(os.environ.get("FERRULE_TEST_CONTAINER_ARGUMENTS", ""))
        return try_engine(ContainerEngine(program, images[0], tuple(arguments)), writable)
    except FerruleError as error:
        return error.detail
    except (OSError, subprocess.SubprocessError) as error:
        return f"no container engine runs here: {error}"
