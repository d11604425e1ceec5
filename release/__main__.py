"""Make a release of this commit in `build/release`: `make release`.

    build twice, compare -> check -> constraints, bill of materials, licenses
    -> no extra, every extra alone, all extras -> a container image -> notes

The image needs podman, the pulled embedded model, and `--base FILE.tar`: a root file system with
the same Python as this one, its venv and libgomp1. Without `--base` it is skipped, and the output
says so.

Needs the package index of this machine, `uv` and git. Nothing is published. Versions come from one
place, `src/ferrule/_version.py`; every folder of `packages/` with a `pyproject.toml` is built too
and must have the same version. `--only STEP` runs one step, `--extras none,a,all` some of the
installations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from smoke_tests import SMOKE_TESTS

from ferrule_local.installed_models import models_folder

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build/release"
TOOLS = ROOT / "build/release-tools"
PINS = ("twine==7.0.0", "cyclonedx-bom==7.5.0")
MOST_BYTES = {
    "ferrule": {"wheel": 2_500_000, "sdist": 16_000_000},
    "ferrule_interfaces": {"wheel": 600_000, "sdist": 600_000},
    "ferrule_local": {"wheel": 8_000_000, "sdist": 8_500_000},
}
"""By distribution."""
ALLOWED_LICENSES = (
    "MIT", "MIT-0", "MIT-CMU", "BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache", "Apache-2.0", "ISC",
    "PSF-2.0", "Python-2.0", "MPL-2.0", "Mozilla Public License 2.0", "Unlicense", "CC0-1.0",
    "0BSD", "Zlib", "LGPL", "HPND",
)  # fmt: skip
"""Beginnings of licenses that a dependency may have; LGPL is psycopg, which is only loaded."""
UNNAMED_LICENSES = {"protobuf": "BSD-3-Clause"}
"""Dependencies whose metadata name no license, and the license of their repository."""
FORBIDDEN_FILES = re.compile(r"(^|/)(\.env|\.git|__pycache__|tests?/|.*\.(pem|key))($|/)")


DESCRIPTIONS = {
    "extras": "Try an installation without extras, each extra alone, and all of them.",
    "image": "Build a container image that answers one question as a user who is not root.",
}
"""What steps with arguments do."""


class ReleaseFailed(Exception):
    """A check of the release failed."""


def run(*words: str, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program and return what it wrote.

    Raises:
        ReleaseFailed: It failed.
    """
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseFailed(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def find_projects() -> list[Path]:
    """Return the folders of the distributions: this one, and those of `packages/`."""
    found = [path.parent for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    return [ROOT, *found]


def read_version() -> str:
    """Return the version of this source tree."""
    text = (ROOT / "src/ferrule/_version.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "([^"]+)"', text)
    if match is None:
        raise ReleaseFailed("src/ferrule/_version.py names no version")
    return match[1]


def list_extras() -> list[str]:
    """Return the names of the extras, without `all`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name != "all"]


def install_tools() -> Path:
    """Install the release tools into an environment of their own and return its programs."""
    programs = TOOLS / "bin"
    if not (programs / "twine").exists():
        run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(TOOLS))
        run("uv", "pip", "install", "--quiet", "--python", str(programs / "python"), *PINS)
    return programs


# ---- steps


def build() -> None:
    """Build every distribution twice, from the time of the commit, and compare the files."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    digests: list[dict[str, str]] = []
    for attempt in ("dist", "dist-again"):
        folder = OUT / attempt
        shutil.rmtree(folder, ignore_errors=True)
        for project in find_projects():
            run(
                "uv", "build", "--quiet", "--no-create-gitignore", "--out-dir", str(folder),
                str(project), SOURCE_DATE_EPOCH=epoch,
            )  # fmt: skip
        files = sorted(folder.iterdir())
        digests.append({one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files})
    first, second = digests
    different = sorted(name for name in first if first[name] != second.get(name))
    if different or first.keys() != second.keys():
        raise ReleaseFailed(f"two builds differ: {', '.join(different) or 'their files'}")
    shutil.rmtree(OUT / "dist-again")
    sums = "".join(f"{digest}  {name}\n" for name, digest in first.items())
    (OUT / "SHA256SUMS").write_text(sums, encoding="utf-8")


def check() -> None:
    """Check metadata, versions, sizes and contents of what was built."""
    files = sorted((OUT / "dist").iterdir())
    run(str(install_tools() / "twine"), "check", "--strict", *map(str, files))
    version = read_version()
    for file in files:
        if f"-{version}" not in file.name:
            raise ReleaseFailed(f"{file.name} has another version than {version}")
        kind = "wheel" if file.suffix == ".whl" else "sdist"
        if file.stat().st_size > MOST_BYTES[file.name.partition("-")[0]][kind]:
            raise ReleaseFailed(f"{file.name}: {file.stat().st_size} bytes; raise MOST_BYTES?")
        names = read_names(file)
        found = [name for name in names if FORBIDDEN_FILES.search(name) and kind == "wheel"]
        if found:
            raise ReleaseFailed(f"{file.name} contains {', '.join(found[:5])}")
        if not any(name.endswith("LICENSE") for name in names):
            raise ReleaseFailed(f"{file.name} has no license")
        print(f"  {file.name}: {file.stat().st_size:,} bytes, {len(names)} files")
    check_division([read_names(file) for file in files if file.suffix == ".whl"])


def check_division(wheels: Sequence[Sequence[str]]) -> None:
    """Check that each file of the source tree is in exactly one wheel."""
    tracked = run("git", "ls-files", "src/ferrule").splitlines()
    packed = [name for names in wheels for name in names]
    for file in tracked:
        found = packed.count(file.removeprefix("src/"))
        if found != 1:
            raise ReleaseFailed(f"{file} is in {found} wheels")


def read_names(file: Path) -> list[str]:
    """Return the names of the files in a wheel or a source distribution."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    with tarfile.open(file) as archive:
        return archive.getnames()


def pin() -> None:
    """Write `constraints.txt`: every dependency of every extra, pinned, with its hashes."""
    run(
        "uv", "pip", "compile", "--quiet", "--extra", "all", "--universal", "--generate-hashes",
        "--no-emit-index-url", "--no-header", "--python-version", "3.11",
        "--find-links", str(OUT / "dist"),
        "--output-file", str(OUT / "constraints.txt"), str(ROOT / "pyproject.toml"),
    )  # fmt: skip
    lines = (OUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if "==" in line and not line.startswith(" ")]
    hashes = sum("--hash=sha256:" in line for line in lines)
    print(f"  {len(pinned)} pinned, {hashes} hashes")


def list_materials() -> None:
    """Write the bill of materials of an installation with every extra, and check its licenses."""
    python = make_environment("all", "all")
    file = OUT / "ferrule.cdx.json"
    run(
        str(install_tools() / "cyclonedx-py"), "environment", "--output-reproducible",
        "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(file), str(python),
    )  # fmt: skip
    components = json.loads(file.read_text(encoding="utf-8"))["components"]
    found = {one["name"]: read_licenses(one) for one in components}
    wrong = [
        f"{name}: {', '.join(licenses) or 'none'}"
        for name, licenses in found.items()
        if not any(map(is_allowed, licenses))
    ]
    if wrong:
        raise ReleaseFailed(f"licenses to look at: {'; '.join(wrong)}")
    print(f"  {len(components)} components")


def is_allowed(license_: str) -> bool:
    """Return whether one of the alternatives of a license may be used."""
    alternatives = re.split(r" OR |[()]", license_)
    return any(one.strip().startswith(ALLOWED_LICENSES) for one in alternatives)


def read_licenses(component: dict[str, object]) -> list[str]:
    """Return the licenses of a component of a bill of materials."""
    found: list[str] = []
    listed = component.get("licenses")
    for one in listed if isinstance(listed, list) else []:
        license_ = one.get("license", {})
        name = one.get("expression") or license_.get("id") or license_.get("name", "")
        found.append(name.removeprefix("License :: OSI Approved :: ").removeprefix("The "))
    return found or [UNNAMED_LICENSES.get(str(component["name"]), "")]


def try_extras(extras: Sequence[str]) -> None:
    """Install each extra alone into a clean environment and run its smoke test.

    `none` is an installation without extras.
    """
    missing = sorted(set(extras) - SMOKE_TESTS.keys())
    if missing:
        raise ReleaseFailed(f"extras without a smoke test: {', '.join(missing)}")

    def try_one(extra: str) -> str:
        python = make_environment(extra, "" if extra == "none" else extra)
        program = SMOKE_TESTS[extra]
        run(str(python), "-c", program, cwd=OUT, FERRULE_HOME=str(OUT / "home"))
        shutil.rmtree(python.parents[1])
        return extra

    with ThreadPoolExecutor(2) as pool:
        for name in pool.map(try_one, extras):
            print(f"  {name}: ok", flush=True)


def make_environment(name: str, extra: str) -> Path:
    """Make a clean environment with the built wheel and an extra. Return its interpreter."""
    folder = OUT / "environments" / name
    shutil.rmtree(folder, ignore_errors=True)
    (wheel,) = (OUT / "dist").glob("ferrule-*.whl")
    run("uv", "venv", "--quiet", "--python", sys.executable, str(folder))
    python = folder / "bin/python"
    named = f"ferrule[{extra}] @ {wheel.as_uri()}" if extra else f"ferrule @ {wheel.as_uri()}"
    # Wheels of this release stand in for those that no index has yet.
    run(
        "uv", "pip", "install", "--quiet", "--python", str(python),
        "--find-links", str(OUT / "dist"), named,
    )  # fmt: skip
    return python


def build_image(base: str) -> None:
    """Build a container image that answers one question as a user who is not root."""
    if not base:
        print("  skipped: name the root file system of the image with `--base FILE.tar`")
        return
    context = OUT / "image"
    shutil.rmtree(context, ignore_errors=True)
    (wheel,) = (OUT / "dist").glob("ferrule-*.whl")
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:",
        "--find-links", str(OUT / "dist"), "--dest", str(context / "wheels"), f"{wheel}[cli,local]",
    )  # fmt: skip
    shutil.copytree(
        models_folder(),
        context / "models",
        ignore=shutil.ignore_patterns("downloads", "*.sqlite"),
    )
    run("podman", "import", "--quiet", str(Path(base).resolve()), "ferrule-base")
    for target in ("tried", "ferrule"):
        # In a chroot, because a machine that is a container itself starts no other one.
        run(
            "podman", "build", "--quiet", "--isolation", "chroot", "--target", target,
            "--build-arg", "BASE=localhost/ferrule-base", "--tag", f"{target}:{read_version()}",
            "--file", str(ROOT / "release/Containerfile"), str(context),
        )  # fmt: skip


def write_notes() -> None:
    """Write the notes of the release: the changelog's section about this version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = read_version()
    match = re.search(rf"^## .*{re.escape(version)}.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ReleaseFailed(f"CHANGELOG.md says nothing about {version}")
    sums = (OUT / "SHA256SUMS").read_text(encoding="utf-8")
    (OUT / "NOTES.md").write_text(f"{match[0]}\n## Files\n\n```text\n{sums}```\n", encoding="utf-8")


def main() -> int:
    """Run the steps and return the exit code."""
    parser = argparse.ArgumentParser(description="Make a release in build/release.")
    parser.add_argument(
        "--extras", default="", help="Only these extras, joined by commas; `none`, `all`."
    )
    parser.add_argument("--only", default="", help="Only this step.")
    parser.add_argument("--base", default="", help="Root file system of the image, as a tar file.")
    parser.add_argument("--dirty", action="store_true", help="Allow uncommitted changes.")
    options = parser.parse_args()
    every = ["none", *list_extras(), "all"]
    extras = options.extras.split(",") if options.extras else every
    steps: dict[str, Callable[[], None]] = {
        "build": build,
        "check": check,
        "pin": pin,
        "materials": list_materials,
        "extras": lambda: try_extras(extras),
        "image": lambda: build_image(options.base),
        "notes": write_notes,
    }
    if not options.dirty and run("git", "status", "--porcelain").strip():
        print("error: there are uncommitted changes\nhint: commit them, or pass --dirty")
        return 1
    OUT.mkdir(parents=True, exist_ok=True)
    for name, step in steps.items():
        if options.only in ("", name):
            print(f"{name}: {(step.__doc__ or DESCRIPTIONS[name]).splitlines()[0]}", flush=True)
            try:
                step()
            except ReleaseFailed as error:
                print(f"error: {error}")
                return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
