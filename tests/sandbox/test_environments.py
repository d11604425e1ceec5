"""What people's programs are installed with runs confined, and what is secret beside it does not
show: one layout of folders for each manager.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shelled import says

from ferrule.permissions.provenance import CommandWritable
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.running_command import explain_unseen
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.environments import find_environments

pytestmark = pytest.mark.skipif(
    not probe().namespaces,
    reason=f"no namespaces here: {probe().why.get('namespaces', 'not Linux')}",
)

SECRET = "sk-secret-of-the-person"

LAYOUTS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # name: folder of the program (`H` is the home, `X` another place), a file that it reads,
    # markers that the manager leaves, secrets beside it
    "venv outside": (
        "X/envs/web/bin",
        "lib/python3.12/site-packages/m.txt",
        ("pyvenv.cfg",),
        ("pip.conf",),
    ),
    "venv in a home": ("H/.venvs/web/bin", "lib/python3.12/m.txt", ("pyvenv.cfg",), ("pip.conf",)),
    "venv that is a project": (
        "H/project/bin",
        "lib/python3.12/m.txt",
        ("pyvenv.cfg",),
        (".env", "notes.txt"),
    ),
    "poetry": (
        "H/.cache/pypoetry/virtualenvs/web-x/bin",
        "lib/python3.12/m.txt",
        ("pyvenv.cfg",),
        ("pip.conf",),
    ),
    "pdm": (
        "H/.local/share/pdm/venvs/web-3.12/bin",
        "lib/python3.12/m.txt",
        ("pyvenv.cfg",),
        ("pip.conf",),
    ),
    "uv python": ("H/.local/share/uv/python/cpython-3.12/bin", "lib/python3.12/os.py", (), ()),
    "uv tool": ("H/.local/share/uv/tools/ruff/bin", "lib/m.txt", ("pyvenv.cfg",), ()),
    "pipx": ("H/.local/share/pipx/venvs/black/bin", "lib/m.txt", ("pyvenv.cfg",), ()),
    "pyenv": ("H/.pyenv/versions/3.12.1/bin", "lib/python3.12/os.py", (), ()),
    "conda in a home": (
        "H/miniconda3/bin",
        "lib/python3.12/os.py",
        ("conda-meta/history",),
        (".condarc",),
    ),
    "conda elsewhere": (
        "X/conda/envs/web/bin",
        "lib/m.txt",
        ("conda-meta/history",),
        (".condarc",),
    ),
    "own python": ("X/python/3.12/bin", "lib/python3.12/os.py", (), (".pypirc",)),
    "nvm": ("H/.nvm/versions/node/v22.1.0/bin", "lib/node_modules/npm/m.txt", (), ()),
    "volta": ("H/.volta/bin", "../.volta/tools/image/node/22/m.txt", (), ()),
    "fnm": (
        "H/.local/share/fnm/node-versions/v22/installation/bin",
        "lib/node_modules/m.txt",
        (),
        (),
    ),
    "own node": ("X/node/bin", "lib/node_modules/npm/m.txt", (), (".npmrc",)),
    "cargo": ("H/.cargo/bin", "registry/src/m.txt", (), ("credentials.toml",)),
    "rustup": ("H/.rustup/toolchains/stable/bin", "lib/rustlib/m.txt", (), ()),
    "go of one's own": ("X/go1.23/bin", "src/m.txt", ("VERSION",), (".env",)),
    "go modules": ("H/go/bin", "pkg/mod/m.txt", (), ("env",)),
    "jdk": ("X/jdk-21/bin", "lib/modules", ("release",), (".netrc",)),
    "sdkman": ("H/.sdkman/candidates/java/21/bin", "lib/modules", ("release",), ()),
    "scripts": ("H/tools/bin", "bin/m.txt", (), (".env",)),
}
PROGRAMS = {"go of one's own": "go", "jdk": "java"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return home


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


def write(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def find_shown(variables: dict[str, str], home: Path, root: Path) -> tuple[str, ...]:
    """Where commands see an installation in use."""
    writable = CommandWritable.from_folders(root)
    found = find_environments(variables, str(home), str(root), writable)
    return tuple(bind.shown_at for bind in found)


async def run(root: Path, script: str) -> tuple[int, str]:
    sandbox = Sandbox(SandboxPolicy(root))
    try:
        variables = ("PATH", "HOME", "VIRTUAL_ENV", "RUSTUP_HOME", "CARGO_HOME")
        environment = {name: os.environ[name] for name in variables if name in os.environ}
        ended, text = await says(sandbox, script, root, environment=environment)
        return ended.exit_code or 0, text
    finally:
        await sandbox.close()


@pytest.mark.parametrize("name", LAYOUTS)
async def test_a_program_runs_with_its_libraries_and_its_secrets_stay_covered(
    name: str, home: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, library, markers, secrets = LAYOUTS[name]
    folder = Path(place.replace("H/", f"{home}/").replace("X/", f"{tmp_path}/elsewhere/"))
    prefix = folder.parent
    program = PROGRAMS.get(name, "python3")
    write(prefix / library, "library")
    write(folder / program, f'#!/bin/sh\nexec cat "{prefix / library}"\n', 0o755)
    for marker in markers:
        write(prefix / marker, "home = /usr/bin\n")
    for secret in secrets:
        write(prefix / secret, SECRET)
    for secret in (".npmrc", ".netrc", ".ssh/id_rsa", ".aws/credentials", ".config/gh/hosts.yml"):
        write(home / secret, SECRET)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    code, text = await run(root, program)
    assert (code, text) == (0, "library"), text
    _, text = await run(root, f"grep -rs {SECRET[:9]} '{home}' '{tmp_path}/elsewhere'; true")
    assert SECRET not in text, text
    code, text = await run(root, f"touch '{folder}/new' 2>&1; echo $?")
    assert not (folder / "new").exists()


@pytest.mark.parametrize("inside", [True, False], ids=["in the folder", "beside it"])
async def test_a_real_virtual_environment_runs_pytest(
    inside: bool, home: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = root / ".venv" if inside else tmp_path / "elsewhere/web"
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=False
    )
    assert made.returncode == 0
    site = next(environment.glob("lib/python3.*/site-packages"))
    ours = next(Path(sys.prefix).glob("lib/python3.*/site-packages"))
    for package in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(ours / package, site / package)
    shutil.copy(ours / "py.py", site)
    write(root / "test_sum.py", "import sys\n\ndef test_sum():\n    assert 1 + 1 == 2\n")
    if inside:
        code, text = await run(root, ".venv/bin/python -m pytest -q -p no:cacheprovider 2>&1")
    else:
        monkeypatch.setenv("PATH", f"{environment}/bin:/usr/bin:/bin")
        monkeypatch.setenv("VIRTUAL_ENV", str(environment))
        code, text = await run(root, "python -m pytest -q -p no:cacheprovider 2>&1")
    assert code == 0 and "1 passed" in text, text


@pytest.mark.parametrize(
    ("program", "script", "files"),
    [
        ("node", "node -e 'console.log(6 * 7)'", {}),
        ("npm", "npm test --silent", {"package.json": '{"scripts": {"test": "echo 42"}}'}),
        (
            "cargo",
            "cargo run -q --offline 2>&1",
            {
                "Cargo.toml": '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n',
                "src/main.rs": 'fn main() { println!("{}", 6 * 7); }\n',
            },
        ),
        (
            "go",
            "go test . 2>&1 && go run . 2>&1",
            {
                "go.mod": "module a\n",
                "main_test.go": 'package main\n\nimport "testing"\n\nfunc TestA(t *testing.T) {}\n',
                "main.go": "package main\n\nfunc main() { println(6 * 7) }\n",
            },
        ),
    ],
)
async def test_the_tools_of_this_machine_run(
    program: str, script: str, files: dict[str, str], root: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    for name, text in files.items():
        write(root / name, text)
    code, text = await run(root, script)
    assert (code, "42" in text) == (0, True), text


def test_nothing_is_opened_that_only_claims_to_be_an_environment(
    home: Path, root: Path, tmp_path: Path
) -> None:
    for name in (".ssh", ".aws", "private", ".config/app/bin", "documents"):
        (home / name).mkdir(parents=True)
    write(root / ".venv/pyvenv.cfg", f"home = {home}/.ssh\n")
    (root / ".venv/bin").mkdir()
    os.symlink(home / "private", root / ".venv/bin/python")
    write(root / "venv/pyvenv.cfg", f"home = {home}\n")
    (root / "venv/bin").mkdir()
    shared = tmp_path / "shared/bin"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    path = ":".join(
        [
            str(home),
            f"{home}/.ssh",
            f"{home}/.aws",
            str(tmp_path),
            "/",
            "/tmp",
            "relative",
            str(shared),
        ]
    )
    variables = {"PATH": path, "VIRTUAL_ENV": str(home), "JAVA_HOME": f"{home}/private"}
    assert find_shown(variables, home, root) == ()


def test_a_project_that_is_an_environment_shows_its_programs_alone(home: Path, root: Path) -> None:
    project = home / "project"
    for name in ("bin/python3", "lib/m.py", "secret-plan.txt", ".env", "pyvenv.cfg"):
        write(project / name, "x")
    found = find_shown({"PATH": f"{project}/bin"}, home, root)
    assert found == tuple(str(project / name) for name in ("bin", "lib", "pyvenv.cfg"))


@pytest.mark.parametrize(
    "files",
    [
        ["bin/go"],
        ["VERSION"],
        ["bin/java"],
        ["release"],
        ["bin/python3"],
        ["lib/python3.12/os.py"],
        ["bin/VERSION", "bin/release", "lib/node_modules"],
    ],
)
def test_a_project_with_half_of_what_makes_an_installation_shows_its_programs_alone(
    files: list[str], home: Path, root: Path
) -> None:
    for name in (*files, "bin/tool", "plan.txt"):
        write(home / "project" / name, "x")
    found = find_shown({"PATH": f"{home}/project/bin"}, home, root)
    assert found == (f"{home}/project/bin",)


@pytest.mark.parametrize("kind", ["closed to us", "a name too long for the kernel"])
def test_an_entry_of_path_that_cannot_be_looked_at_is_passed_over(
    kind: str, home: Path, root: Path
) -> None:
    closed = home / "closed"
    write(closed / "bin/python3", "x")
    closed.chmod(0)
    entry = closed / "bin" if kind == "closed to us" else home / ("x" * 300) / "bin"
    write(home / "project/bin/tool", "x")
    variables = {"PATH": f"{entry}:{home}/project/bin", "JAVA_HOME": str(entry.parent)}
    try:
        found = find_shown(variables, home, root)
    finally:
        closed.chmod(0o700)
    assert f"{home}/project/bin" in found


BASES = {
    # what made an environment in the workspace: where its interpreter is, and what names it
    "venv": ("X/python/bin", "home = {0}\nexecutable = {0}/python3.12\n"),
    "virtualenv": ("X/python/bin", "home = {0}\nbase-executable = {0}/python3.12\n"),
    "uv": ("H/.local/share/uv/python/cpython-3.12/bin", "home = {0}\nuv = 0.5\n"),
    "pyenv": ("H/.pyenv/versions/3.12.1/bin", "home = {0}\n"),
    "asdf": ("H/.asdf/installs/python/3.12.1/bin", "home = {0}\n"),
    "mise": ("H/.local/share/mise/installs/python/3.12/bin", "home = {0}\n"),
    "conda": ("H/miniconda3/bin", "home = {0}\n"),
    "poetry": ("H/.local/share/pypoetry/python/3.12/bin", "home = {0}\n"),
    "links to it": ("X/python/bin", "home = {1}\n"),
}


@pytest.mark.parametrize("name", BASES)
async def test_the_interpreter_of_an_environment_in_the_workspace_runs(
    name: str, home: Path, root: Path, tmp_path: Path
) -> None:
    place, text = BASES[name]
    folder = Path(place.replace("H/", f"{home}/").replace("X/", f"{tmp_path}/elsewhere/"))
    write(folder.parent / "lib/python3.12/os.py", "library")
    program = f'#!/bin/sh\nexec cat "{folder.parent}/lib/python3.12/os.py"\n'
    write(folder / "python3.12", program, 0o755)
    beside = folder.parent / "notes.txt" if place.startswith("X") else home / "notes.txt"
    write(beside, SECRET)
    (folder / "python3").symlink_to("python3.12")
    links = tmp_path / "links"
    links.mkdir()
    (links / "python3").symlink_to(folder / "python3")
    write(root / ".venv/pyvenv.cfg", text.format(folder, links))
    (root / ".venv/bin").mkdir()
    (root / ".venv/bin/python").symlink_to(folder / "python3")
    assert await run(root, ".venv/bin/python") == (0, "library")
    _, text = await run(root, f"cat {beside} 2>&1")
    assert SECRET not in text


@pytest.mark.parametrize(
    "fault",
    ["no library", "library elsewhere", "interpreter elsewhere", "others write it", "hidden"],
)
def test_an_interpreter_is_one_by_what_it_is_and_by_where_it_is(
    fault: str, home: Path, root: Path, tmp_path: Path
) -> None:
    prefix = home / (".config/app" if fault == "hidden" else "python")
    write(tmp_path / "other/python3.12/os.py", "x")
    write(tmp_path / "other/python3", "x", 0o755)
    write(prefix / "include/Python.h", "x")
    if fault == "library elsewhere":
        (prefix / "lib").symlink_to(tmp_path / "other")
    elif fault != "no library":
        write(prefix / "lib/python3.12/os.py", "x")
    write(prefix / "bin/other", "x", 0o755)
    if fault == "interpreter elsewhere":
        (prefix / "bin/python3").symlink_to(tmp_path / "other/python3")
    else:
        write(prefix / "bin/python3", "x", 0o755)
    if fault == "others write it":
        prefix.chmod(0o777)
    write(root / ".venv/pyvenv.cfg", f"home = {prefix}/bin\n")
    assert find_shown({}, home, root) == ()


def test_what_is_out_of_sight_is_named_with_the_line_that_opens_it(
    home: Path, tmp_path: Path
) -> None:
    if " " in str(tmp_path):
        pytest.skip("the first line of a script names no interpreter whose path has a blank")
    interpreter = tmp_path / "odd/python/bin/python3"
    write(interpreter, "#!/bin/sh\n", 0o755)
    script = tmp_path / "größer/tool"
    write(script, f"#!{interpreter} -u\n", 0o755)
    line = explain_unseen(str(script))
    assert f"`{script}` and `{interpreter}` are out of sight" in line
    opened = f'`sandbox: {{readable: ["{script.parent}", "{interpreter.parent.parent}"]}}`'
    assert opened in line
    write(script, "#!/bin/sh\n", 0o755)
    assert f"`{script}` is out of sight" in explain_unseen(str(script))
