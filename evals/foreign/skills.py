"""Published skills, put where a person has theirs and read through a run: `make lab NAME=foreign`.

Every folder with a `SKILL.md` in a package becomes `~/.agents/skills/NAME`, under the name of its
folder in the package. A skill fits if it is loaded and the tool `skill` gives its whole text.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import click

from ferrule.engine.session import Session
from ferrule.extensions.skills.loading import load_skills
from ferrule.extensions.untrusted_frames import neutralize
from ferrule.runtime.assemble import assemble
from ferrule.storage.trust import ConfigurationSnapshot

from .hooks import new_person
from .table import write_table

PACKAGES = (
    ("npm", "ai-labs-claude-skills@2.0.1"),
    ("npm", "@elizaos/skills@2.0.0-beta.1"),
    ("npm", "@houseofwolvesllc/claude-scrum-skill@2.8.1"),
    ("npm", "@plaited/development-skills@0.8.1"),
    ("npm", "shopify-cc-kit@2.0.3"),
    ("npm", "@wednesday-solutions-eng/ai-agent-skills@1.1.0"),
    ("pip", "adclaw==1.0.33"),
)


_CUT = re.compile(r"^\[cut: .* go on with `offset` = \d+\]$", re.MULTILINE)


@dataclass(slots=True)
class SkillCount:
    """What became of the skills of one package."""

    found: int = 0
    read: int = 0
    long: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])


def unpack(source: str, requirement: str, place: Path) -> None:
    """Fetch a package and unpack it into `place`; nothing of it is run."""
    place.mkdir(parents=True)
    if source == "npm":
        subprocess.run(
            ["npm", "pack", "-s", requirement], cwd=place, check=True, capture_output=True
        )
        (archive,) = place.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(place / "files", filter="data")
        return
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, requirement]
    subprocess.run(words, check=True, capture_output=True)
    (archive,) = place.glob("*.whl")
    with zipfile.ZipFile(archive) as packed_wheel:
        packed_wheel.extractall(place / "files")


def put_skills(files: Path, skills: Path) -> int:
    """Copy every skill of an unpacked package. Return how many there are."""
    skills.mkdir(parents=True)
    names = sorted(path.parent for path in files.rglob("SKILL.md"))
    taken: set[str] = set()
    for folder in names:
        if folder.name in taken:
            continue
        taken.add(folder.name)
        shutil.copytree(folder, skills / folder.name)
    return len(taken)


async def read_skill(session: Session, name: str) -> str:
    """Read a skill to its end, as a model that follows the notes."""
    text = ""
    rest = "0]"
    while rest:
        arguments = {"name": name, "offset": int(rest.partition("]")[0])}
        answer = str((await session.call_tool("skill", arguments)).data)
        text += answer
        rest = answer.rpartition("go on with `offset` = ")[2] if _CUT.search(answer) else ""
    return text


async def read_skills(home: Path, work: Path, count: SkillCount) -> None:
    """Read every skill that is loaded through the tool, and count those that come whole."""
    assembly = assemble({"workspace": str(work)}, notice=lambda text: None, needs_model=False)
    session = assembly.open_session(None)
    nothing = ConfigurationSnapshot(str(work), "absent", "")
    loaded = load_skills(work, nothing, home / "config", home=home)
    try:
        for skill in loaded.skills:
            text = await read_skill(session, skill.name)
            # What a person would not see is spelled out, and marks of frames are broken.
            is_whole = all(line in text for line in neutralize(skill.body).splitlines())
            count.read += is_whole
            count.long += len(skill.body.encode()) > 12_000
            if not is_whole:
                count.reasons[f"`{skill.name}` not whole"] += 1
    finally:
        await assembly.close(session, strict=False)
    count.reasons.update(_shorten(warning.message) for warning in loaded.broken)


def _shorten(message: str) -> str:
    """Return what kind of thing a message says, without the names in it."""
    head = message.partition(";")[0]
    return " ".join("`…`" if word.startswith("`") else word for word in head.split())[:90]


def try_skills(names: list[str], *, verbose: bool = False) -> int:
    """Try the packages and write their table. Return how many skills did not come whole."""
    rows: list[list[str]] = []
    whole = total = 0
    for source, requirement in PACKAGES:
        if names and not any(name in requirement for name in names):
            continue
        scratch = Path(tempfile.mkdtemp(prefix="ferrule-foreign-", dir=Path.home()))
        count = SkillCount()
        try:
            unpack(source, requirement, scratch / "package")
            (scratch / "work").mkdir()
            skills = scratch / "home/.agents/skills"
            count.found = put_skills(scratch / "package/files", skills)
            with new_person(scratch / "home", scratch / "home/bin"):
                asyncio.run(read_skills(scratch / "home", scratch / "work", count))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        reasons = "; ".join(f"{many} × {why}" for why, many in count.reasons.most_common())
        click.echo(f"{requirement:50} {count.found:4} {count.read:4} {count.long:4}  {reasons}")
        rows.append(
            [
                f"`{requirement}`",
                source,
                str(count.found),
                str(count.read),
                str(count.long),
                reasons or "-",
            ]
        )
        total += count.found
        whole += count.read
    if not names:
        write_table(
            "skills",
            ["package", "from", "skills", "read whole", "over 12,000 bytes", "not loaded, and why"],
            rows,
            f"{whole} of {total} skills were loaded and read whole, nothing edited.",
        )
    return 0
