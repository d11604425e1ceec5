"""Where skills are found, who answers for them, which of two holds, and what the model is told of
them.
"""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.extensions.skills import loading
from ferrule.extensions.skills.catalogue import render_catalogue
from ferrule.extensions.skills.git_ignored import GitIgnoredFiles
from ferrule.extensions.skills.skill_file import Skill
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.storage.trust import TrustStore

MAX_BYTES = 8 * 1024


def origins(loaded: loading.LoadedSkills) -> dict[str, str]:
    return {skill.name: skill.origin for skill in loaded.skills}


def broken(loaded: loading.LoadedSkills) -> str:
    return "\n".join(map(str, loaded.broken))


def test_skills_are_found_in_the_repository_and_in_the_persons_folders(place: Any) -> None:
    place.skill(".agents/skills", "a")
    place.skill(".claude/skills", "b")
    place.skill("skills", "c", below=place.own)
    place.skill(".agents/skills", "d", below=place.home)
    place.skill(".ferrule/skills", "e")
    TrustStore().trust(place.workspace)
    loaded = place.load()
    assert origins(loaded) == {
        "a": "repository",
        "b": "repository",
        "c": "person",
        "d": "person",
        "e": "trusted",
    }
    assert loaded.warnings == ()
    assert [tool.name for tool in loaded.tools] == ["skill"]


def test_without_skills_there_is_no_tool_and_no_text(place: Any) -> None:
    place.put(".agents/skills/README.md", "not a skill")
    loaded = place.load()
    assert (loaded.skills, loaded.tools, loaded.catalogue_text, loaded.warnings) == ((), (), "", ())


def test_the_persons_folders_are_looked_at_only_if_they_are_given(place: Any) -> None:
    place.skill(".agents/skills", "d", below=place.home)
    seen = TrustStore().read(place.workspace)
    assert loading.load_skills(place.workspace, seen, home=place.home).skills == ()


def test_what_lies_in_ferrule_does_nothing_until_it_is_trusted_and_after_a_change(
    place: Any,
) -> None:
    place.skill(".ferrule/skills", "e")
    loaded = place.load()
    assert (loaded.skills, loaded.inert) == ((), (".ferrule/skills/e/SKILL.md",))
    assert "no effect until you trust the folder" in str(loaded.warnings[0])
    TrustStore().trust(place.workspace)
    assert origins(place.load()) == {"e": "trusted"}
    place.skill(".ferrule/skills", "e", "Something else.")
    assert place.load().skills == ()


def test_trust_does_not_reach_what_its_digest_does_not_cover(place: Any) -> None:
    place.skill(".agents/skills", "a")
    place.skill(".ferrule/skills", "e")
    TrustStore().trust(place.workspace)
    assert origins(place.load()) == {"a": "repository", "e": "trusted"}


def test_a_repository_cannot_put_its_text_in_the_place_of_the_persons(place: Any) -> None:
    place.skill("skills", "deploy", "Mine.", below=place.own)
    place.skill(".agents/skills", "deploy", "Theirs.", below=place.home)
    place.skill(".ferrule/skills", "deploy", "Trusted.")
    place.skill(".agents/skills", "deploy", "Foreign.")
    TrustStore().trust(place.workspace)
    loaded = place.load()
    assert [skill.description for skill in loaded.skills] == ["Mine."]
    assert [one.where for one in loaded.warnings] == [
        str(place.home / ".agents/skills/deploy/SKILL.md"),
        ".ferrule/skills/deploy/SKILL.md",
        ".agents/skills/deploy/SKILL.md",
    ]
    assert all("is not used" in one.message for one in loaded.warnings)


def test_the_same_skill_in_two_folders_is_no_warning(place: Any) -> None:
    place.skill(".agents/skills", "a")
    place.skill(".claude/skills", "a")
    loaded = place.load()
    assert ([skill.file for skill in loaded.skills], loaded.warnings) == (
        [".agents/skills/a/SKILL.md"],
        (),
    )


def test_a_bad_skill_is_left_out_with_its_place_and_the_others_work(place: Any) -> None:
    place.skill(".agents/skills", "good")
    place.put(".agents/skills/bad/SKILL.md", "---\nname: other\nmetadata: [x]\n---\n")
    place.put(".agents/skills/empty/notes.md", "x")
    loaded = place.load()
    assert origins(loaded) == {"good": "repository"}
    assert "bad/SKILL.md:3:11: `metadata` must be a mapping" in broken(loaded)
    assert "empty/SKILL.md: there is no `SKILL.md` in this folder" in broken(loaded)


# ---- git


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        (".gitignore", ".agents/"),
        (".gitignore", "/.agents/skills/a/"),
        (".gitignore", "SKILL.md"),
        (".agents/.gitignore", "skills"),
        (".agents/skills/a/.gitignore", "*"),
        (".git/info/exclude", ".agents"),
    ],
)
def test_a_skill_that_git_ignores_is_not_loaded(place: Any, file: str, pattern: str) -> None:
    place.skill(".agents/skills", "a")
    place.put(file, f"# a comment\n{pattern}\n")
    loaded = place.load()
    assert loaded.skills == ()
    assert "git ignores it" in broken(loaded)


def test_an_ignore_file_above_the_workspace_counts_up_to_the_repositorys_root(place: Any) -> None:
    inner = place.workspace / "agents" / "inner"
    place.skill("agents/inner/.agents/skills", "a")
    assert origins(loading.load_skills(inner, TrustStore().read(inner))) == {"a": "repository"}
    place.put(".gitignore", "inner/\n")
    assert loading.load_skills(inner, TrustStore().read(inner)).skills == ()


def test_trust_does_not_bring_back_what_git_ignores(place: Any) -> None:
    place.skill(".ferrule/skills", "e")
    place.put(".gitignore", ".ferrule/\n")
    TrustStore().trust(place.workspace)
    assert place.load().skills == ()


PATTERNS = (
    "*.md",
    "!SKILL.md",
    "build/",
    "/a",
    "a/b",
    "**/x",
    "a/**",
    "!a/",
    "!a",
    "**",
    "/**",
    "a/**/SKILL.md",
    "!a/**",
    "!x/*",
    "b/",
    "[ab]",
    "#a",
    "\\#a",
    "a ",
    "!b",
    "x/*",
    "//",
)
NAMES = (
    "a/b/SKILL.md",
    "a/SKILL.md",
    "b/SKILL.md",
    "build/SKILL.md",
    "x/y/SKILL.md",
    "a/x/b",
    "#a/SKILL.md",
    "b/x",
)


@given(
    top=st.lists(st.sampled_from(PATTERNS), max_size=4),
    inner=st.lists(st.sampled_from(PATTERNS), max_size=3),
)
def test_what_is_ignored_is_what_git_says(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], inner: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "a").mkdir()
    (folder / ".gitignore").write_text("\n".join(top))
    (folder / "a/.gitignore").write_text("\n".join(inner))
    said = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin"],
        cwd=folder, input="\n".join(NAMES), capture_output=True, text=True, check=False,
    )  # fmt: skip
    with closing(Workspace(folder)) as tree, closing(GitIgnoredFiles(tree, folder)) as ignored:
        assert [name for name in NAMES if ignored(name)] == said.stdout.splitlines()


# ---- bounds


def test_there_is_a_bound_to_how_many_skills_are_loaded(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MOST_SKILLS", 3)
    monkeypatch.setattr(loading, "MOST_ENTRIES", 6)
    for number in range(8):
        place.skill(".agents/skills", f"s{number}")
    loaded = place.load()
    assert [skill.name for skill in loaded.skills] == ["s0", "s1", "s2"]
    assert "only the first 6 were looked at" in broken(loaded)
    assert broken(loaded).count("there are more than 3 skills") == 3


# ---- the catalogue


def made(name: str, description: str = "Does things.", origin: Any = "repository") -> Skill:
    return Skill(name, description, "Body.", f".agents/skills/{name}/SKILL.md", origin)


def test_the_catalogue_has_a_line_per_skill_in_the_same_bytes_every_time(place: Any) -> None:
    for name in ("zeta", "alpha"):
        place.skill(".claude/skills", name, f"About {name}.")
    place.skill("skills", "mine", "Of the person.", below=place.own)
    text = place.load().catalogue_text
    assert text == place.load().catalogue_text
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        '- mine: "Of the person."',
        '- alpha: "About alpha."',
        '- zeta: "About zeta."',
    ]
    assert (
        text.index("Written or trusted by the person")
        < text.index("- mine")
        < text.index("Brought by")
    )


@given(
    st.lists(
        st.builds(
            made,
            st.from_regex(r"[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,3}", fullmatch=True),
            st.text(max_size=1024),
        ),
        max_size=60,
        unique_by=lambda skill: skill.name,
    )
)
def test_whatever_descriptions_say_a_catalogue_is_bounded_and_has_only_its_own_lines(
    skills: list[Skill],
) -> None:
    text, _ = render_catalogue(skills)
    assert len(text.encode()) <= MAX_BYTES
    assert text == render_catalogue(skills[::-1])[0]
    lines = [line for line in text.split("\n") if line.startswith("- ")]
    assert [line.split(":")[0] for line in lines] == [
        f"- {s.name}" for s in sorted(skills, key=lambda s: s.name)
    ]
    # What it is about, a blank line and a heading stand before them, and nothing else.
    assert len(text.split("\n")) == len(lines) + (3 if skills else 1)


def test_long_descriptions_are_shortened_and_many_names_left_out_and_both_are_said() -> None:
    text, said = render_catalogue([made(f"s{number}", "x" * 1000) for number in range(30)])
    assert len(text.encode()) <= MAX_BYTES and text.count("…") == 30
    assert said == "30 descriptions of skills are shortened for the model"
    text, said = render_catalogue(
        [made(f"a-very-long-name-of-a-skill-{number:04}", "x" * 1000) for number in range(500)]
    )
    listed = sum(line.startswith("- ") for line in text.splitlines())
    assert 100 < listed < 500 and len(text.encode()) <= MAX_BYTES
    assert f"{500 - listed} more skills are not listed" in text and said.startswith(
        f"{500 - listed} skills"
    )


# ---- rules


def test_a_skill_that_a_rule_denies_is_not_in_the_catalogue(place: Any) -> None:
    place.skill(".agents/skills", "good")
    place.skill(".agents/skills", "bad")
    place.skill(".claude/skills", "hidden")
    loaded = place.load()
    gate = PermissionGate(
        RuleSet.parse(deny=["Skill(bad)", "Read(.claude/**)"]), root=place.workspace
    )
    seen = loaded.filter_by(gate)
    assert [skill.name for skill in seen.skills] == ["good"]
    assert "- good" in seen.catalogue_text and "bad" not in seen.catalogue_text
    assert seen.tools[0].arguments.schema["properties"]["name"]["enum"] == ["good"]
    assert loaded.filter_by(PermissionGate(root=place.workspace)) is loaded
    nothing = loaded.filter_by(PermissionGate(RuleSet.parse(deny=["Skill"]), root=place.workspace))
    assert (nothing.tools, nothing.catalogue_text) == ((), "")


def test_names_that_the_settings_reserve_hide_skills_too(place: Any) -> None:
    from ferrule.permissions.protected_names import DEFAULT_NAMES

    place.skill(".claude/skills", "a")
    assert place.load(names=DEFAULT_NAMES.extend(secret=(".claude",))).skills == ()


def test_a_folder_that_is_none_is_said(place: Any) -> None:
    place.put(".agents/skills", "a file")
    place.put("skills", "a file", below=place.own)
    assert "is a file" in broken(place.load())


def test_the_two_folders_of_a_repository_may_be_one(place: Any) -> None:
    place.skill(".agents/skills", "a")
    (place.workspace / ".claude").mkdir()
    Path(place.workspace / ".claude/skills").symlink_to("../.agents/skills")
    loaded = place.load()
    assert (origins(loaded), loaded.warnings) == ({"a": "repository"}, ())
