"""The types keep what a command could have chosen from what is shown, started and loosened."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ferrule
from ferrule.permissions.provenance import (
    NOTHING_WRITABLE,
    Origin,
    TrustedPath,
    TrustedProgram,
    trust_path,
)
from ferrule.storage.settings.values import OwnEntries, TrustedEntries

PACKAGE = Path(ferrule.__file__).parent

CHECKED = Path(__file__).with_name("provenance_typing.py")


@pytest.mark.proves("programs.one-finder", "sandbox.opened-folders.provenance")
def test_pyright_refuses_a_path_or_program_of_unknown_origin(tmp_path: Path) -> None:
    (tmp_path / CHECKED.name).write_text(CHECKED.read_text(encoding="utf-8"), encoding="utf-8")
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    pyright = Path(sys.executable).with_name("pyright")
    command = [str(pyright), "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("0 errors, 0 warnings, 0 informations"), done.stdout


@pytest.mark.proves("programs.one-finder", "sandbox.opened-folders.provenance")
def test_nothing_is_trusted_by_being_called_so() -> None:
    for kind in (TrustedPath, TrustedProgram, OwnEntries, TrustedEntries):
        with pytest.raises(TypeError):
            kind("/usr")  # pyright: ignore[reportArgumentType]
    place = trust_path("/usr", Origin.MACHINE, NOTHING_WRITABLE, reason="x")
    for copied in (pickle.loads(pickle.dumps(place)), copy.deepcopy(place)):
        assert (copied, copied.origin, copied.reason) == ("/usr", Origin.MACHINE, "x")


MAKERS = {
    "TrustedPath": {"permissions/provenance.py"},
    "TrustedProgram": {"permissions/provenance.py"},
    "OwnEntries": {"storage/settings/values.py"},
    "TrustedEntries": {"storage/settings/settings.py"},
}
"""Which files may call the private maker of a type."""


def test_nobody_else_makes_what_is_trusted() -> None:
    found: dict[str, set[str]] = {name: set() for name in MAKERS}
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"(\w+)\._make\(", file.read_text("utf-8")):
            if name in found:
                found[name].add(str(file.relative_to(PACKAGE)))
    assert found == MAKERS
