"""Parse a skill file: `<name>/SKILL.md`, with front matter and the text that the model reads.

    ---
    name: release-notes
    description: Writes release notes from the history. Use it when a release is prepared.
    license: MIT
    compatibility: Needs git.
    metadata: {author: tools-team}
    allowed-tools: git_log Read
    ---
    1. List the commits since the last tag ...

Source: https://agentskills.io/specification and conventions §3.2. `name` is that of the folder: 1
to 64 lower-case letters, digits and single hyphens. `description` has 1 to 1,024 characters,
`compatibility` at most 500, `metadata` maps text to text. Unknown keys are warnings.

`allowed-tools` is parsed and shown to people, and grants nothing: what a tool may do is decided by
rules and by the person, not by the text that asks for it.

Claude Code adds two keys (https://code.claude.com/docs/en/skills): with `disable-model-invocation:
true` only a person calls the skill, with `user-invocable: false` only the model does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.extensions.front_matter import (
    Document,
    FileWarning,
    find_unknown_keys,
    get_bool,
    get_field,
    get_text,
    parse_document,
)
from ferrule.storage.settings.yaml_tree import Node

FILE_NAME = "SKILL.md"
KEYS = (
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    "disable-model-invocation",
    "user-invocable",
)
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MOST_BYTES = 256 * 1024
"""Bytes of one `SKILL.md`. The specification recommends far less."""

Origin = Literal["person", "trusted", "repository"]
"""Who vouches for a skill: the person who wrote it, the person who trusted it, or only its authors.
"""

_NAME = compile_lazily(r"[a-z0-9]+(-[a-z0-9]+)*")


@frozen
class Skill:
    """A skill as it was written.

    `file` is its `SKILL.md` as people see it: relative to the workspace, or absolute outside of it.
    `is_for_model` and `is_for_person` say who may call it.
    """

    name: str
    description: str
    body: str
    file: str
    origin: Origin = "repository"
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    allowed_tools: tuple[str, ...] = ()
    is_for_model: bool = True
    is_for_person: bool = True
    warnings: tuple[FileWarning, ...] = ()

    @property
    def folder(self) -> str:
        """The folder of its `SKILL.md`, relative or absolute like `file`."""
        return self.file.rpartition("/")[0]


def parse_skill(data: bytes, file: str, origin: Origin = "repository") -> Skill:
    """Parse a skill file; `file` ends with `<folder>/SKILL.md`.

    Raises:
        ConfigError: The file is invalid. The message has file, line and column.
    """
    document = parse_document(data, file)
    fields = document.fields
    warnings = find_unknown_keys(fields, KEYS, "a skill")
    if not document.body:
        warnings.append(
            FileWarning(file, "there is no text after the front matter, so the skill is empty")
        )
    metadata = _metadata(fields, warnings)
    return Skill(
        name=_name(fields, file.split("/")[-2], warnings),
        description=_description(document, warnings),
        body=document.body,
        file=file,
        origin=origin,
        license=get_text(fields, "license"),
        compatibility=_text(fields, "compatibility", MAX_COMPATIBILITY, warnings),
        metadata=metadata,
        allowed_tools=_allowed_tools(fields, warnings),
        is_for_model=not get_bool(fields, "disable-model-invocation"),
        is_for_person=get_bool(fields, "user-invocable", default=True),
        warnings=tuple(warnings),
    )


def _name(fields: Node, folder: str, warnings: list[FileWarning]) -> str:
    """Return the skill's name: the one that is written, else what can be made of it."""
    written = get_text(fields, "name").strip()
    place = get_field(fields, "name") or fields
    candidates = (written, _make_name(written), folder, _make_name(folder))
    name = next((one for one in candidates if _is_name(one)), None)
    if name is None:
        raise place.error(
            f"neither `{written}` nor its folder makes a name",
            hint="use lower-case letters, digits and single hyphens between them",
        )
    if written != folder or name != written:
        message = f"the skill is named `{written}` and its folder `{folder}`; it is `{name}` here"
        warnings.append(FileWarning(place.where, message))
    return name


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def _make_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _description(document: Document, warnings: list[FileWarning]) -> str:
    """Return the description, or the first line of the text where there is none."""
    fields = document.fields
    text = _text(fields, "description", MAX_DESCRIPTION, warnings)
    if text:
        return text
    lines = (line.strip("# \t") for line in document.body.splitlines())
    first = next((line for line in lines if line), "")[:MAX_DESCRIPTION]
    if not first:
        raise fields.error(
            "`description` is missing or empty",
            hint="write `description: …` between the `---` lines",
        )
    message = "`description` is missing; the first line of the text stands in for it"
    warnings.append(FileWarning(fields.where, message))
    return first


def _text(fields: Node, key: str, most: int, warnings: list[FileWarning]) -> str:
    text = get_text(fields, key).strip()
    place = get_field(fields, key)
    if place is not None and len(text) > most:
        message = f"`{key}` has {len(text)} characters; the first {most} are used"
        warnings.append(FileWarning(place.where, message))
    return text[:most]


def _metadata(fields: Node, warnings: list[FileWarning]) -> dict[str, str]:
    """Return the text values. Others, such as the number in `version: 1.0`, give a warning."""
    found = get_field(fields, "metadata")
    if found is None:
        return {}
    if found.pairs is None:
        raise found.error("`metadata` must be a mapping of text to text")
    texts: dict[str, str] = {}
    for key, (_, value) in found.pairs.items():
        if isinstance(value.value, str):
            texts[key] = value.value
            continue
        message = f"`metadata.{key}` is no text and was left out; put it in quotes"
        warnings.append(FileWarning(value.where, message))
    return texts


def _allowed_tools(fields: Node, warnings: list[FileWarning]) -> tuple[str, ...]:
    found = get_field(fields, "allowed-tools")
    if found is None:
        return ()
    if not isinstance(found.value, str):
        # A warning only, because the key grants nothing.
        message = "`allowed-tools` must be names with blanks between them; it was left out"
        warnings.append(FileWarning(found.where, message))
        return ()
    # A rule such as `Bash(git log:*)` contains blanks.
    return tuple(re.findall(r"[^\s,(]+(?:\([^)]*\))?", found.value))
