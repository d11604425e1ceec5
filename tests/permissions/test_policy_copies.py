"""Copies of policy values decide what the originals decide, however they are made."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ferrule
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.permissions.call_analysis import OpenedFolders
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.path_denials import NamesOfFolder, OpenRefusals, PathDenials
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.policy import Protection, ResourceLimits, SandboxPolicy
from ferrule.toolkits.subfolder import open_subfolder

SOURCES = Path(ferrule.__file__).parent

RULES = RuleSet.parse(deny=["Read(private/**)", "Edit(frozen/**)", "Read(*.secret)"])
DENIALS = PathDenials(RULES.deny, "/work", "/home/p")


def refuse_logs(name: str, write: bool) -> str:
    return "denied by a test" if name.startswith("logs/") else ""


LISTS = ProtectedNames(("vault",), ("*.token",), ("Makefile",))
NAMES = {
    "lists": LISTS,
    "deny rules": LISTS.extend(rules=[DENIALS]),
    "a gate": LISTS.extend(rules=[OpenRefusals(refuse_logs, DENIALS)]),
    "both": LISTS.extend(rules=[DENIALS, OpenRefusals(refuse_logs)]),
    "a folder": ProtectedNames(
        rules=(NamesOfFolder("private", LISTS.extend(rules=[DENIALS])),),
    ),
}
PATHS = (
    *("a.txt", "private/s.txt", "private", "frozen/a", "deep/x.secret", "logs/a", "vault/x"),
    *("x.token", "Makefile", ".env", ".git/config", "sub/private/s.txt", ".vscode/tasks.json"),
)

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "replace": replace,
}
NARROWER: dict[str, Callable[[ProtectedNames], ProtectedNames]] = {
    "nothing": lambda names: names.extend(),
    "a secret": lambda names: names.extend(secret=(".credentials.json",)),
    "a reserved name": lambda names: names.extend(reserved=("other",)),
    "another rule": lambda names: names.extend(rules=[OpenRefusals(lambda name, write: "")]),
    "replaced lists": lambda names: replace(names, secret=(*names.secret, "other")),
}


def decisions(names: ProtectedNames) -> list[object]:
    checked: list[object] = [
        names.check(path, write=write) for path in PATHS for write in (False, True)
    ]
    shown = [sorted(names.select_suspicious("sub", ["private", "x.secret", "a.py", "x.token"]))]
    return [*checked, *shown, names.creation_patterns]


@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("kind", NAMES)
def test_a_copy_of_protected_names_decides_alike(kind: str, made: str) -> None:
    names = NAMES[kind]
    copied = COPIES[made](names)
    assert type(copied) is ProtectedNames
    assert copied == names
    assert decisions(copied) == decisions(names)
    assert decisions(copied.for_commands()) == decisions(names.for_commands())


@pytest.mark.parametrize("way", NARROWER)
@pytest.mark.parametrize("kind", NAMES)
def test_further_names_let_pass_nothing_that_was_refused(kind: str, way: str) -> None:
    names = NAMES[kind]
    narrower = NARROWER[way](names)
    for path in PATHS:
        for write in (False, True):
            if names.check(path, write=write) is not None:
                assert narrower.check(path, write=write) is not None, path
            if names.for_commands().check(path, write=write) is not None:
                assert narrower.for_commands().check(path, write=write) is not None, path
    assert set(names.creation_patterns) <= set(narrower.creation_patterns)


POLICIES: list[Any] = [
    SandboxPolicy(
        Path("/work"),
        NAMES["deny rules"],
        ("/data",),
        ("/out",),
        ("/scratch",),
        ("example.org",),
        ResourceLimits(1, 2, 3),
        frozenset({Protection.NETWORK}),
        True,
    ),
    ResourceLimits(1, None, 3),
    DENIALS,
    RULES.deny[0],
    OpenedFolders(("/data",), ("/out",)),
    SafeMode(True, ("ls",), {"docs": ("read",)}),
]


@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_copy_of_a_policy_is_of_its_kind_and_equal(policy: Any, made: str) -> None:
    copied = COPIES[made](policy)
    assert type(copied) is type(policy)
    assert copied == policy
    if isinstance(policy, SandboxPolicy):
        assert decisions(copied.names) == decisions(policy.names)


def test_hooks_are_kept_from_what_commands_are_kept_from(tmp_path: Path) -> None:
    home = tmp_path / "claude"
    home.mkdir()
    policy = SandboxPolicy(tmp_path, NAMES["deny rules"])
    for readable in (None, home):
        runner = HookCommandRunner(tmp_path, policy=policy, readable=readable)
        starts = (
            runner._make_plain_start("true"),  # pyright: ignore[reportPrivateUsage]
            runner._make_trusted_start("true"),  # pyright: ignore[reportPrivateUsage]
        )
        for made in (start.policy for start in starts):
            for path in PATHS:
                refused = policy.names.check(path, write=False)
                assert refused is None or made.names.check(path, write=False) == refused
            assert made.names.creation_patterns == policy.names.creation_patterns
        runner.close_now()


def test_a_workspace_that_is_restricted_twice_refuses_both(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    gate = PermissionGate(RULES, root=tmp_path)
    once = Workspace(tmp_path, names=LISTS).restrict(gate.find_refusal, gate.path_denials)
    twice = once.restrict(refuse_logs)
    below = open_subfolder(twice, "sub")
    for name in ("private/s.txt", "logs/a", "vault/x"):
        assert twice.names.check(name, write=False) is not None, name
    for names in (twice.names_for_commands(), twice.names_for_commands(LISTS)):
        assert names.check("private/s.txt", write=False) is not None
    assert below.names.check("x.secret", write=False) is not None
    assert below.names_for_commands().check("x.secret", write=False) is not None
    assert below.restrict(refuse_logs).names.check("x.secret", write=False) is not None


def test_protected_names_have_no_subclass_whose_part_a_copy_could_lose() -> None:
    with pytest.raises(TypeError, match="no subclasses"):
        type("Narrower", (ProtectedNames,), {})


def test_no_source_copies_protected_names_field_by_field() -> None:
    fields = set(ProtectedNames.__dataclass_fields__)
    copies: list[str] = []
    for file in SOURCES.rglob("*.py"):
        text = file.read_text()
        if "ProtectedNames(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(
                "ProtectedNames"
            ):
                continue
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            read = [one.attr for one in values if isinstance(one, ast.Attribute)]
            if len(fields.intersection(read)) > 1:
                copies.append(f"{file.relative_to(SOURCES)}:{node.lineno}")
    assert copies == [], "use `extend`, `only_lists` or `for_commands`"
