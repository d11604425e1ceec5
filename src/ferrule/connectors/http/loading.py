"""Load HTTP tools: from a person's settings and trusted repositories, or for a program.

A program names its files itself (`http_tools`, `openapi_tools`). The command line's tools come from
(`load_tools`):

    the settings folder   http/*.yaml
    tools.http_manifests  the person's own files: absolute, `~/…`, or below the settings folder
    tools.openapi         the person's own documents, with what they want of each
    a repository          .ferrule/http/*.yaml and .harness/http/*.yaml, once it is trusted as it is

A file in the workspace can be changed by whatever works there, so it is only ever read as a
repository's: under trust, with the secrets that the person named in `tools.http_secrets`, and with
hosts off the open internet only if they are listed in `tools.http_hosts`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.definition import Tool

from .fields import Fields, Problems, to_node
from .manifest import parse_manifest, read_manifest
from .openapi import ImportChoice, import_document, parse_document
from .openapi.document import MAX_BYTES
from .secrets import PERSONAL_SECRETS, Secrets
from .sender import Sender
from .spec import Manifest
from .tools import MakeSender, make_tools

SETTINGS_FOLDER = "http"
REPOSITORY_FOLDERS = (".ferrule/http/", ".harness/http/")
ENTRY_KEYS = (
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
_SUFFIXES = (".yaml", ".yml")


@frozen
class HttpToolSettings:
    """What a person's settings say about HTTP tools.

    Args:
        manifests: The person's files.
        openapi: The value of `tools.openapi`.
        hosts: Hosts that a repository's files may open.
        secrets: Secrets that a repository's files may use.
        settings_folder: The settings folder.
    """

    manifests: tuple[str, ...] = ()
    openapi: Any = None
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    settings_folder: Path | None = None


@dataclass(slots=True)
class LoadedTools:
    """The loaded tools, and sentences about what was left out."""

    tools: tuple[Tool, ...] = ()
    notices: list[str] = field(default_factory=list[str])


def is_manifest(name: str) -> bool:
    """Return whether a file of a workspace is a manifest, by its path."""
    root = next((root for root in REPOSITORY_FOLDERS if name.startswith(root)), "")
    return bool(root) and name.endswith(_SUFFIXES) and "/" not in name[len(root) :]


def load_tools(
    settings: HttpToolSettings,
    repository: ConfigurationSnapshot | None = None,
    *,
    secrets: Secrets = PERSONAL_SECRETS,
) -> LoadedTools:
    """Return the tools of all sources.

    A source that cannot be used is left out whole, and a notice says why: a tool that is described
    incompletely, or whose secret is missing, does not become part of a run, and the tools of other
    sources do. Never raises for what is in a source.
    """
    loaded = LoadedTools()
    repository_secrets = secrets.restrict(settings.secrets)
    tools: list[Tool] = []
    sources = _sources(settings, repository, secrets, repository_secrets, loaded.notices)
    for read, allowed_secrets in sources:
        try:
            tools += make_tools(read(), allowed_secrets)
        except ConfigError as error:
            hint = f"; {error.hint}" if error.hint else ""
            loaded.notices.append(f"HTTP tools were left out: {error.detail}{hint}")
    loaded.tools = tuple(tools)
    return loaded


def _sources(
    wanted: HttpToolSettings,
    seen: ConfigurationSnapshot | None,
    secrets: Secrets,
    repository_secrets: Secrets,
    notices: list[str],
) -> Iterator[tuple[Callable[[], Manifest], Secrets]]:
    workspace = "" if seen is None else seen.workspace
    for path in _personal_files(wanted):
        yield partial(_read_manifest_file, path, workspace, wanted, secrets), secrets
    for name, entry in _entries(wanted.openapi):
        yield partial(_read_document, name, entry, wanted, workspace, secrets, notices), secrets
    if seen is None or seen.state != "trusted":
        return
    for name in sorted(filter(is_manifest, seen.files)):
        read = partial(
            parse_manifest,
            seen.files[name],
            name,
            origin="repository",
            opened_hosts=wanted.hosts,
            secrets=repository_secrets,
        )
        yield read, repository_secrets


def _read_manifest_file(
    path: Path, workspace: str, wanted: HttpToolSettings, secrets: Secrets
) -> Manifest:
    return parse_manifest(
        _read(path, workspace, wanted.settings_folder), str(path), secrets=secrets
    )


def check_repository_manifests(
    repository: ConfigurationSnapshot, hosts: Iterable[str] = ()
) -> Iterator[tuple[str, ConfigError]]:
    """Yield what is wrong with a repository's manifests, trusted or not.

    Secrets are not looked up.
    """
    for name in sorted(filter(is_manifest, repository.files)):
        try:
            parse_manifest(
                repository.files[name], name, origin="repository", opened_hosts=hosts, secrets=None
            )
        except ConfigError as error:
            yield name, error


# ---- files of the person


def _personal_files(wanted: HttpToolSettings) -> Iterator[Path]:
    paths: list[Path] = []
    folder = None if wanted.settings_folder is None else wanted.settings_folder / SETTINGS_FOLDER
    if folder is not None and folder.is_dir():
        paths += sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    paths += [_resolve(text, wanted.settings_folder) for text in wanted.manifests]
    yield from dict.fromkeys(paths)


def _resolve(text: str, own: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() or own is None else own / path


def _read(path: Path, workspace: str, own: Path | None, most: int = 1 << 20) -> bytes:
    real = Path(os.path.realpath(path))
    is_personal = own is not None and real.is_relative_to(os.path.realpath(own))
    if workspace and real.is_relative_to(workspace) and not is_personal:
        hint = (
            "move it out of the workspace, or to `.ferrule/http/` there, where it counts once "
            "you trust the folder"
        )
        raise ConfigError(
            f"`{path}` is in the workspace, where a tool could change it",
            code="http_manifest",
            hint=hint,
        )
    try:
        with real.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error


# ---- documents


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and entries of a mapping, or of a list of entries with a `name`."""
    if isinstance(value, Mapping):
        yield from ((str(name), entry) for name, entry in cast("Mapping[Any, Any]", value).items())
    elif isinstance(value, (list, tuple)):
        for entry in cast("list[Any]", value):
            yield str(mapping_or_empty(entry).get("name", "")), entry


def read_choice(name: str, entry: Any, where: str) -> tuple[str, ImportChoice]:
    """Return the file and the choice of an entry. Raises ConfigError, a line for each problem."""
    problems = Problems()
    if isinstance(entry, str):
        entry = {"file": entry}
    fields = Fields(to_node(entry, where), ENTRY_KEYS, "an entry", problems)
    file = fields.text("file", required=True)
    loading = ""
    if fields.is_given("loading"):
        loading = fields.choice("loading", ("always", "deferred"), "")
    choice = ImportChoice(
        namespace=name,
        server=fields.text("server"),
        variables=_read_text_mapping(fields, "variables", problems),
        auth=_read_text_mapping(fields, "auth", problems),
        tags=_text_list(fields, "tags"),
        without_tags=_text_list(fields, "without_tags"),
        operations=_text_list(fields, "operations"),
        without=_text_list(fields, "without"),
        deprecated=fields.flag("deprecated", True),
        loading=loading,
        hosts=_text_list(fields, "hosts"),
        results=fields.flag("results", False),
    )
    problems.raise_all()
    return file, choice


def _text_list(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(node.value for node in fields.texts(name))


def _read_text_mapping(fields: Fields, name: str, problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, node in fields.get_pairs(name):
        if isinstance(node.value, str):
            found[key] = node.value
        else:
            problems.add(node, f"`{name}.{key}` must be text")
    return found


def _read_document(
    name: str,
    entry: Any,
    wanted: HttpToolSettings,
    workspace: str,
    secrets: Secrets,
    notices: list[str],
) -> Manifest:
    where = f"tools.openapi: `{name}`"
    file, choice = read_choice(name, entry, where)
    path = _resolve(file, wanted.settings_folder)
    data = _read(path, workspace, wanted.settings_folder, MAX_BYTES)
    plain_manifest, left_out = import_document(parse_document(data, str(path)), choice)
    notices += [f"{where}: {sentence}" for sentence in left_out]
    manifest = read_manifest(to_node(plain_manifest, str(path)), secrets=secrets)
    return replace(manifest, file=name or manifest.file)


# ---- for a program


def http_tools(
    *manifests: str | Path | Mapping[str, Any],
    hosts: Iterable[str] = (),
    secrets: Secrets = PERSONAL_SECRETS,
    sender: MakeSender = Sender,
) -> tuple[Tool, ...]:
    """Return the tools of manifests: paths of YAML files, or the same as a mapping.

    Args:
        manifests: Paths of YAML files, or their contents as mappings.
        hosts: Hosts that are opened besides those that the manifests list.
        secrets: Where the secrets that manifests name are looked up.
        sender: Makes what sends the requests of a manifest.

    Raises:
        ConfigError: Has a line for everything that is wrong in a file.
    """
    opened = tuple(hosts)
    tools: list[Tool] = []
    for source in manifests:
        if isinstance(source, Mapping):
            manifest = read_manifest(
                to_node(source, "manifest"), opened_hosts=opened, secrets=secrets
            )
        else:
            manifest = parse_manifest(
                _read_bytes(source), str(source), opened_hosts=opened, secrets=secrets
            )
        tools += make_tools(manifest, secrets, sender=sender)
    return tuple(tools)


class OpenApiOptions(TypedDict, total=False):
    """What a program wants of an OpenAPI document.

    Patterns may contain `*`; operations are named by `operationId` or as `GET /pets/{id}`.

    Attributes:
        namespace: In front of the tools' names; by default the document's title.
        server: One of the document's addresses, or another one.
        variables: Values for the variables of the server's address.
        auth: Security schemes mapped to references, such as `${PETSTORE_KEY}`.
        tags: Tags whose operations are imported; by default all.
        without_tags: Tags whose operations are left out.
        operations: Operations to import; by default all.
        without: Operations to leave out.
        deprecated: Whether deprecated operations are imported; by default they are.
        loading: `always` or `deferred`.
        hosts: Hosts that are opened besides the server's own.
        results: Whether answers are checked against the document; by default they are not.
    """

    namespace: str
    server: str
    variables: Mapping[str, str]
    auth: Mapping[str, str]
    tags: tuple[str, ...]
    without_tags: tuple[str, ...]
    operations: tuple[str, ...]
    without: tuple[str, ...]
    deprecated: bool
    loading: str
    hosts: tuple[str, ...]
    results: bool


def openapi_tools(
    document: str | Path,
    *,
    secrets: Secrets = PERSONAL_SECRETS,
    sender: MakeSender = Sender,
    **choice: Unpack[OpenApiOptions],
) -> tuple[Tool, ...]:
    """Return the tools of an OpenAPI document (YAML or JSON).

    Operations that cannot be tools are left out; `ferrule tools import openapi` says which.

    Args:
        document: Path of the document.
        secrets: Where the secrets of requests are looked up.
        sender: Makes what sends the requests.
        choice: What of the document becomes tools, and how it is reached.

    Raises:
        ConfigError: Nothing can be made of the document.
        TypeError: There is no such option.
    """
    known = list(OpenApiOptions.__annotations__)
    unknown = [given for given in choice if given not in known]
    if unknown:
        hint = suggest_names(unknown[0], known, f"there are: {', '.join(known)}")
        raise TypeError(f"unexpected `{unknown[0]}`; {hint}")
    name = str(document)
    parsed = parse_document(_read_bytes(document), name)
    plain_manifest, _ = import_document(parsed, ImportChoice(**choice))
    manifest = read_manifest(to_node(plain_manifest, name), secrets=secrets)
    return make_tools(manifest, secrets, sender=sender)


def _read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
