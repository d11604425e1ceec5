"""Where the tools of the command line come from: a person's manifests and OpenAPI documents, and
the manifests of a trusted repository.

    the settings folder     http/*.yaml
    tools.http_manifests    files of the person's own: absolute, `~/…`, or beneath the settings folder
    tools.openapi           documents of the person's own, with what they want of each
    a repository            .ferrule/http/*.yaml and .harness/http/*.yaml, once it is trusted as it stands

What lies in the workspace can be changed by whatever works there, so a file of it is only ever read
as a repository's: under trust, with the secrets that the person named in `tools.http_secrets`, and
with hosts off the open internet only if they stand in `tools.http_hosts`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ferrule.connectors.json_values import mapping_of
from ferrule.core.errors import ConfigError
from ferrule.storage.trust import Snapshot
from ferrule.tools.definition import Tool

from .fields import Fields, Problems, tree
from .manifest import parse_manifest, read_manifest
from .openapi import Choice, import_document, parse_document
from .openapi.document import MAX_BYTES
from .secrets import PERSONS, Secrets
from .send import Sender
from .spec import Manifest
from .tools import MakeSender, make_tools

FOLDER = "http"
ROOTS = (".ferrule/http/", ".harness/http/")
ENTRY = (
    "name",
    "file",
    "server",
    "variables",
    "auth",
    "tags",
    "without_tags",
    "operations",
    "without",
    "deprecated",
    "loading",
    "hosts",
    "results",
)
_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person's settings say: files, documents (`tools.openapi`, as it stands there), hosts
    and secrets for a repository's files.
    """

    manifests: tuple[str, ...] = ()
    openapi: Any = None
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    own: Path | None = None


@dataclass(slots=True)
class Loaded:
    """Tools, and sentences about what was left out."""

    tools: tuple[Tool, ...] = ()
    notices: list[str] = field(default_factory=list[str])


def is_manifest(name: str) -> bool:
    """Whether a file of a workspace is a manifest, by its place."""
    root = next((root for root in ROOTS if name.startswith(root)), "")
    return bool(root) and name.endswith(_ENDINGS) and "/" not in name[len(root) :]


def load_tools(
    wanted: Wanted,
    seen: Snapshot | None = None,
    *,
    secrets: Secrets = PERSONS,
    sender: MakeSender = Sender,
) -> Loaded:
    """The tools of all sources. Raises ConfigError with a line for everything that is wrong in any
    of them: a tool that is half described, or whose secret is missing, does not come to a run.
    """
    loaded, wrong = Loaded(), list[str]()
    theirs = secrets.only(wanted.secrets)
    tools: list[Tool] = []
    hint = ""
    for read, given in _sources(wanted, seen, secrets, theirs, loaded.notices):
        try:
            tools += make_tools(read(), given, sender=sender)
        except ConfigError as error:
            wrong.append(error.detail)
            hint = error.hint
    if wrong:
        raise ConfigError(
            "\n".join(wrong), code="http_manifest", hint=hint if len(wrong) == 1 else ""
        )
    loaded.tools = tuple(tools)
    return loaded


def _sources(
    wanted: Wanted, seen: Snapshot | None, secrets: Secrets, theirs: Secrets, notices: list[str]
) -> Iterator[tuple[Callable[[], Manifest], Secrets]]:
    workspace = "" if seen is None else seen.workspace
    for path in _files(wanted):
        yield partial(_file, path, workspace, wanted, secrets), secrets
    for name, entry in _entries(wanted.openapi):
        yield partial(_document, name, entry, wanted, workspace, secrets, notices), secrets
    if seen is None or seen.state != "trusted":
        return
    for name in sorted(filter(is_manifest, seen.files)):
        given = {"origin": "repository", "opened": wanted.hosts, "secrets": theirs}
        yield partial(parse_manifest, seen.files[name], name, **given), theirs


def _file(path: Path, workspace: str, wanted: Wanted, secrets: Secrets) -> Manifest:
    return parse_manifest(_read(path, workspace, wanted.own), str(path), secrets=secrets)


def check_files(seen: Snapshot, hosts: Iterable[str] = ()) -> Iterator[tuple[str, ConfigError]]:
    """What is wrong with a repository's manifests, whether it is trusted or not. Secrets are not
    looked for.
    """
    for name in sorted(filter(is_manifest, seen.files)):
        try:
            parse_manifest(seen.files[name], name, origin="repository", opened=hosts, secrets=None)
        except ConfigError as error:
            yield name, error


# ---- files of the person


def _files(wanted: Wanted) -> Iterator[Path]:
    seen: set[Path] = set()
    folder = None if wanted.own is None else wanted.own / FOLDER
    found = (
        sorted(one for one in folder.iterdir() if one.suffix in _ENDINGS)
        if folder is not None and folder.is_dir()
        else []
    )
    for path in (*found, *(_placed(text, wanted.own) for text in wanted.manifests)):
        if path not in seen:
            seen.add(path)
            yield path


def _placed(text: str, own: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() or own is None else own / path


def _read(path: Path, workspace: str, own: Path | None, most: int = 1 << 20) -> bytes:
    real = Path(os.path.realpath(path))
    mine = own is not None and real.is_relative_to(os.path.realpath(own))
    if workspace and real.is_relative_to(workspace) and not mine:
        hint = (
            "move it out of the workspace, or to `.ferrule/http/` there, where it counts once "
            "you trust the folder"
        )
        raise ConfigError(
            f"`{path}` lies in the workspace, where a tool could change it",
            code="http_manifest",
            hint=hint,
        )
    try:
        with real.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error


# ---- documents


def _entries(given: Any) -> Iterator[tuple[str, Any]]:
    """A mapping of names to entries, or a list of entries with a `name`."""
    if isinstance(given, Mapping):
        yield from ((str(name), entry) for name, entry in cast("Mapping[Any, Any]", given).items())
    elif isinstance(given, (list, tuple)):
        for entry in cast("list[Any]", given):
            yield str(mapping_of(entry).get("name", "")), entry


def choice_of(name: str, entry: Any, where: str) -> tuple[str, Choice]:
    """The file and the choice of an entry. Raises ConfigError, a line for each problem."""
    problems = Problems()
    fields = Fields(
        tree({"file": entry} if isinstance(entry, str) else entry, where),
        ENTRY,
        "an entry",
        problems,
    )
    file = fields.text("file", needed=True)
    loading = (
        fields.choice("loading", ("always", "deferred"), "") if fields.given("loading") else ""
    )
    choice = Choice(
        namespace=name,
        server=fields.text("server"),
        variables=_texts(fields, "variables", problems),
        auth=_texts(fields, "auth", problems),
        tags=_list(fields, "tags"),
        without_tags=_list(fields, "without_tags"),
        operations=_list(fields, "operations"),
        without=_list(fields, "without"),
        deprecated=fields.flag("deprecated", True),
        loading=loading,
        hosts=_list(fields, "hosts"),
        results=fields.flag("results", False),
    )
    problems.raise_all()
    return file, choice


def _list(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(node.value for node in fields.texts(name))


def _texts(fields: Fields, name: str, problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, node in fields.mapping(name):
        if isinstance(node.value, str):
            found[key] = node.value
        else:
            problems.add(node, f"`{name}.{key}` must be text")
    return found


def _document(
    name: str, entry: Any, wanted: Wanted, workspace: str, secrets: Secrets, notices: list[str]
) -> Manifest:
    where = f"tools.openapi: `{name}`"
    file, choice = choice_of(name, entry, where)
    path = _placed(file, wanted.own)
    manifest, left_out = import_document(
        parse_document(_read(path, workspace, wanted.own, MAX_BYTES), str(path)), choice
    )
    notices += [f"{where}: {said}" for said in left_out]
    read = read_manifest(tree(manifest, str(path)), secrets=secrets)
    return replace(read, file=name or read.file)
