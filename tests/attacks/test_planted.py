"""Nothing that a repository brings or a command leaves decides what commands see of the machine,
what runs outside of the sandbox, or what the settings of a trusted repository restrict.

The rows are in `planted`. Each is tried on every backend of this machine: as a repository brings it
(`first`), planted by a command before another one of the same session (`same`) and of the next one
(`next`). `make lab NAME=attacks` tries all; otherwise each row is tried in one session on one backend.

`first` is left out for Ferrule's own code: who starts an interpreter that a repository brought is
not protected from it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planted import (
    FAILED,
    believing,
    environments,
    later,
    linked_homes,
    own_code,
    repositories,
    search_paths,
    settings_elsewhere,
)
from planted import trusted_settings as changes
from planted_world import BACKENDS, READ_ALL, PlantedWorld, list_files, planted_world

import ferrule
from ferrule.core.errors import ToolFailed
from ferrule.permissions import provenance
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import ProgramNotFound, find_program
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import PROJECT_FILE, TrustStore

SESSIONS = ("first", "same", "next")
EVERY = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
TABLES: dict[str, Sequence[tuple[str, ...]]] = {
    "environments": environments.PLANTED,
    "repositories": repositories.PLANTED,
    "own code": own_code.ATTEMPTS,
    "search paths": search_paths.PLANTED,
    "trusted settings": changes.PLANTED,
    "later": later.PLANTED,
    "linked homes": linked_homes.PLANTED,
    "settings elsewhere": settings_elsewhere.PLANTED,
}


def choose_rows(
    rows: Sequence[tuple[str, ...]], sessions: Sequence[str] = SESSIONS
) -> list[object]:
    """Each row in each session on each backend, or in one of these in turn."""
    kinds = [(backend, session) for session in sessions for backend in BACKENDS]
    return [
        pytest.param(*values, *kind, id="-".join((name, *kind)))
        for number, (name, *values, _) in enumerate(rows)
        for kind in (kinds if EVERY else [kinds[number % len(kinds)]])
    ]


def test_the_table_is_large_and_most_of_it_got_through_before() -> None:
    names = Counter(row[0] for rows in TABLES.values() for row in rows)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) >= 120
    failed = [row[0] for rows in TABLES.values() for row in rows if row[-1] == FAILED]
    assert len(failed) > len(names) / 2


@pytest.fixture(scope="module")
def shared_world() -> Iterator[PlantedWorld]:
    with planted_world() as made:
        yield made


@pytest.fixture
def world(shared_world: PlantedWorld) -> PlantedWorld:
    shared_world.reset()
    return shared_world


@pytest.mark.parametrize(
    ("script", "backend", "session"),
    choose_rows((*environments.PLANTED, *repositories.PLANTED)),
)
def test_what_is_planted_opens_nothing(
    script: str, backend: str, session: str, world: PlantedWorld
) -> None:
    with world.planted(script, session, backend) as begun:
        printed = world.say(begun, f"{READ_ALL.format(home=world.home)}; cat data/a; echo seen")
    assert world.canary not in printed
    assert "seen" in printed, printed  # the view was built, so that the row was tried


NEVER_OPENS = {
    "venv-bin-to-home": "nothing can be mounted over the session's own home",
    "home-is-home": "nothing can be mounted over the session's own home",
    "home-of-a-planted-python": "it names a part of the workspace",
    "home-too-long": "it names nothing; commands must run all the same",
    "home-in-a-circle": "it names nothing; commands must run all the same",
    "home-null": "it names nothing; commands must run all the same",
    "configuration-is-a-pipe": "it names nothing; commands must run all the same",
}
"""Rows of environments that no search could believe, and why."""


HELD_BY_PROVENANCE = {
    "on-path-bin",
    "on-path-itself",
    "opened-link",
    "opened-below-a-link",
    "opened-in-shared",
}
"""Rows whose folder the person named, by a path that commands can turn elsewhere."""


def choose_believed(table: Sequence[tuple[str, ...]]) -> list[object]:
    """Each row that could open something; a part of them unless all are tried."""
    rows = [row for row in table if row[0] not in NEVER_OPENS]
    return [pytest.param(*row[:2], id=row[0]) for row in rows[:: 1 if EVERY else 6]]


@pytest.mark.parametrize(("name", "script"), choose_believed(environments.PLANTED))
def test_each_wall_around_planted_environments_holds_alone_and_none_is_idle(
    name: str, script: str, world: PlantedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for environments believes no link; provenance passes no path through one.

    What a configuration names as text is for the search alone, and a folder that the person named
    for provenance alone.
    """
    with monkeypatch.context() as patch:
        believing.trust_everything(patch)
        assert world.reaches(script) is (name in HELD_BY_PROVENANCE)
    with monkeypatch.context() as patch:
        believing.believe_environments(patch)
        assert world.reaches(script) is ("= <H>" in script)
        believing.trust_everything(patch)
        assert world.reaches(script)


@pytest.mark.parametrize(("name", "script"), choose_believed(repositories.PLANTED))
def test_a_planted_repository_would_open_the_persons_if_it_were_believed(
    name: str, script: str, world: PlantedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what holds these rows is that a repository has to name the workspace."""
    believing.believe_repositories(monkeypatch)
    assert world.reaches(script), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_canary_of_a_folder_that_is_opened_by_its_own_path_is_read(
    backend: str, world: PlantedWorld
) -> None:
    """What the rows look for is found where it may be."""
    world.plant("cp <H>/Documents/taxes.txt <H>/shared")
    read_all = READ_ALL.format(home=f"{world.home} {world.home}/shared")
    with world.begin(backend) as begun:
        assert world.canary in world.say(begun, read_all)


@pytest.mark.proves("sandbox.planted.programs")
@pytest.mark.parametrize(
    ("entry", "script", "backend", "session"), choose_rows(search_paths.PLANTED)
)
def test_a_program_that_is_planted_on_the_path_is_passed_over(
    entry: str,
    script: str,
    backend: str,
    session: str,
    world: PlantedWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(world.root)
    for name, target in search_paths.LINKS.items():
        place = world.home / name
        place.parent.mkdir(exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(world.script(target))
    real = world.home / "real/tool"
    world.write(real, "#!/bin/sh\necho real\n")
    real.chmod(0o755)
    path = world.script(f"{entry}:<H>/real")
    found = find_program("tool", path, world.policy().command_writable)
    assert found == str(real)
    with world.planted(f"PLANT=/bin/true; {script}", session, backend):
        # Something was planted, and a plain search finds it.
        assert shutil.which("tool", path=path) != str(real)
        assert find_program("tool", path, world.policy().command_writable) == str(real)
        with pytest.raises(ProgramNotFound):
            find_program("tool", world.script(entry), world.policy().command_writable)
        found.check()


@pytest.mark.proves("trust.restrictions-kept")
@pytest.mark.parametrize(("script", "backend", "session"), choose_rows(changes.PLANTED))
def test_no_change_of_what_was_trusted_loosens_it(
    script: str, backend: str, session: str, world: PlantedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(world.home / ".local/state"))
    trusted = {
        "permissions": {"deny": ["Read(private/**)"], "allow": ["Bash(make:*)"]},
        "tools": {"python": ["tools/t.py"]},
    }
    prepare = f"mkdir -p .ferrule tools; echo pass > tools/t.py; echo '{json.dumps(trusted)}'"
    world.reset()
    world.plant(f"{prepare} > {PROJECT_FILE}")
    TrustStore().trust(world.root)
    if session == "first":
        world.plant(script)
    else:
        world.say(world.running(backend), script)
    if session == "next":
        with world.begin(backend) as begun:
            world.say(begun, "true")
    read = load_settings(
        workspace=world.root, user_file=world.home / "own.yaml", flags=None, environment={}
    )
    rules = {(rule.text, rule.list) for rule in read.rules}
    assert ("Read(private/**)", "deny") in rules
    assert {text for text, kind in rules if kind == "allow"} <= {"Bash(make:*)"}
    assert read["mode"] == "default"


def prepare_repository(world: PlantedWorld, hooks: str) -> Path:
    """Make a repository of the workspace, and what must not run. Returns the mark that it leaves."""
    evil = world.home / "evil"
    mark = world.home / "mark"
    mark.unlink(missing_ok=True)
    world.write(evil, f"#!/bin/sh\n: > {mark}\n")
    evil.chmod(0o755)
    world.reset()
    world.plant(later.PREPARE.replace("<E>", str(evil)))
    if hooks:
        world.plant(f"git config core.hooksPath {hooks}")
    assert not mark.exists()
    return mark


@pytest.mark.parametrize(
    ("hooks", "script", "backend", "session"), choose_rows(later.PLANTED, ("same", "next"))
)
def test_the_persons_own_git_runs_nothing_that_a_command_planted(
    hooks: str, script: str, backend: str, session: str, world: PlantedWorld
) -> None:
    mark = prepare_repository(world, hooks)
    script = script.replace("<E>", str(world.home / "evil")).replace("<M>", str(mark))
    with world.begin(backend) as planting:
        world.say(planting, script)
        if session == "same":
            assert "over" in world.say(planting, "git status; echo over")
    if session == "next":
        with world.begin(backend) as begun:
            assert "over" in world.say(begun, "git status; git commit -qam x; echo over")
    world.plant(later.WORK)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("hooks", "script"), [pytest.param(*row[1:3], id=row[0]) for row in later.PLANTED]
)
def test_what_is_planted_for_the_persons_git_would_run(
    hooks: str, script: str, world: PlantedWorld
) -> None:
    """The control: planted by a program without a sandbox, each of them runs."""
    mark = prepare_repository(world, hooks)
    world.plant(script.replace("<E>", str(world.home / "evil")).replace("<M>", str(mark)))
    world.plant(later.WORK)
    assert mark.exists()


def link_home(world: PlantedWorld, name: str, target: Path) -> Path:
    """Have a name of the home lead somewhere. Another row may have had links in a folder of it."""
    link = world.home / name
    if link.is_dir():
        shutil.rmtree(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    return link


@pytest.mark.parametrize(
    ("leads", "place", "name", "backend", "session"),
    choose_rows(linked_homes.PLANTED, ("same", "next")),
)
@pytest.mark.parametrize("exists", [True, False])
def test_what_the_home_leads_to_is_not_written(
    leads: str,
    place: str,
    name: str,
    backend: str,
    session: str,
    exists: bool,
    world: PlantedWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = world.root / name
    if exists:
        world.write(written, "mine\n")
    if leads.endswith("="):
        monkeypatch.setenv(leads[:-1], str(world.root / place))
        link = None
    else:
        link = link_home(world, leads, world.root / place)
    script = f"echo x > plain; mkdir -p $(dirname {name}); echo x >> {name}; mv plain {name}; true"
    try:
        with world.begin(backend) as planting:
            world.say(planting, script)
            if session == "same":
                world.say(planting, script)
        if session == "next":
            with world.begin(backend) as begun:
                world.say(begun, script)
        with pytest.raises(ToolFailed, match=r"protected|reserved|secret"):
            Workspace(world.root).write(name, b"x")
    finally:
        if link is not None:
            link.unlink()
    assert (world.root / "plain").exists(), "nothing was tried"
    assert (written.read_text() if written.exists() else "") == ("mine\n" if exists else "")


@pytest.mark.parametrize(
    ("leads", "place", "name", "backend"),
    [
        pytest.param(*row[1:4], BACKENDS[number % len(BACKENDS)], id=row[0])
        for number, row in enumerate(linked_homes.PLANTED)
    ],
)
def test_what_the_home_leads_to_in_an_opened_folder_is_not_written(
    leads: str,
    place: str,
    name: str,
    backend: str,
    world: PlantedWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = world.home / "shared"
    world.write(shared / name, "mine\n")
    link = None
    if leads.endswith("="):
        monkeypatch.setenv(leads[:-1], str(shared / place))
    else:
        link = link_home(world, leads, shared / place)
    try:
        with world.begin(backend) as begun:
            world.say(
                begun,
                f"cd {shared}; echo x > plain; echo x >> {name}; mv plain {name}; echo > plain",
            )
    finally:
        if link is not None:
            link.unlink()
    assert (shared / "plain").exists(), "nothing was tried"
    assert (shared / name).read_text() == "mine\n"


@pytest.fixture
def prepared(
    prepare: str, variable: str, world: PlantedWorld, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """What the person has set up in a repository; yields the mark of what must not run."""
    mark = prepare_repository(world, "")
    name, _, value = world.script(variable).partition("=")
    if name:
        monkeypatch.setenv(name, value)
    world.plant(prepare)
    yield mark
    world.plant(settings_elsewhere.CLEAR)


@pytest.mark.parametrize(
    ("prepare", "variable", "script", "backend", "session"),
    choose_rows(settings_elsewhere.PLANTED, ("same", "next")),
)
def test_no_command_changes_settings_of_the_person_wherever_they_lie(
    prepared: Path, script: str, backend: str, session: str, world: PlantedWorld
) -> None:
    script = script.replace("<E>", str(world.home / "evil"))
    with world.begin(backend) as planting:
        world.say(planting, script)
        if session == "same":
            assert "over" in world.say(planting, "git status; echo over")
    if session == "next":
        with world.begin(backend) as begun:
            assert "over" in world.say(begun, "git status; echo over")
    world.plant(settings_elsewhere.WORK)
    assert not prepared.exists()


@pytest.mark.parametrize(
    ("prepare", "variable", "script"),
    [pytest.param(*row[1:4], id=row[0]) for row in settings_elsewhere.PLANTED],
)
def test_settings_that_lie_elsewhere_would_run_what_is_planted_in_them(
    prepared: Path, script: str, world: PlantedWorld
) -> None:
    """The control: planted by a program without a sandbox, each of them runs."""
    world.plant(script.replace("<E>", str(world.home / "evil")))
    world.plant(settings_elsewhere.WORK)
    assert prepared.exists()


@pytest.fixture
def installed(world: PlantedWorld, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment in the workspace that Ferrule runs from."""
    prefix = world.root / "backend/.venv"
    packages = prefix / "lib/python3/site-packages"
    for name in ("bin/rg", "pyvenv.cfg", "lib/python3/site-packages/module.py"):
        world.write(prefix / name, "as it was\n")
    (prefix / "bin/rg").chmod(0o755)
    (prefix / "bin/python").symlink_to("/usr/bin/env")
    (world.root / "current").symlink_to("backend/.venv")
    places = (str(prefix), f"{world.root}/current/bin", str(packages))
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(places))
    return prefix


@pytest.mark.parametrize(
    ("script", "backend", "session"), choose_rows(own_code.ATTEMPTS, ("same", "next"))
)
def test_no_command_replaces_what_ferrule_runs_from(
    script: str, backend: str, session: str, installed: Path, world: PlantedWorld
) -> None:
    before = list_files(installed)
    with world.begin(backend) as planting:
        world.say(planting, script)
        if session == "same":
            assert "over" in world.say(planting, "echo over")
    if session == "next":
        with world.begin(backend) as begun:
            assert "over" in world.say(begun, "echo over")
    assert list_files(installed) == before
    current = world.root / "current"
    assert not os.path.lexists(current) or current.resolve() == installed


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_lies_beside_our_own_code_is_written_and_moved_as_ever(
    backend: str, installed: Path, world: PlantedWorld
) -> None:
    script = "mkdir -p a/b && mv a c && echo x > backend/new && rm -r c && ln -s backend link"
    with world.begin(backend) as begun:
        assert world.say(begun, f"{script} && cat link/new current/bin/rg") == "x\nas it was\n"


def test_ferrule_in_the_environment_of_a_project_searches_with_its_own_program(
    world: PlantedWorld,
) -> None:
    """A real installation: the process that searches runs on the environment of the workspace."""
    python = world.root / ".venv/bin/python"
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(world.root / ".venv")], check=False
    )
    assert made.returncode == 0
    site = next((world.root / ".venv").glob("lib/python3.*/site-packages"))
    ours = next(Path(sys.prefix).glob("lib/python3.*/site-packages"))
    (site / "x.pth").write_text(f"{Path(ferrule.__file__).parent.parent}\n{ours}\n")
    shutil.copy("/bin/true", world.root / ".venv/bin/rg")
    program = Path(__file__).with_name("planted_installation.py")
    ended = subprocess.run(
        [str(python), str(program), str(world.root)], capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1:] == ["unchanged"], ended
