"""HTTP tools for a program: from files, or from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.tools.definition import Tool

from .fields import tree
from .manifest import parse_manifest, read_manifest
from .openapi import Choice, import_document, parse_document
from .secrets import PERSONS, Secrets
from .send import Sender
from .tools import MakeSender, make_tools


def http_tools(
    *manifests: str | Path | Mapping[str, Any],
    hosts: Iterable[str] = (),
    secrets: Secrets = PERSONS,
    sender: MakeSender = Sender,
) -> tuple[Tool, ...]:
    """The tools of manifests: paths of YAML files, or the same as a mapping.

    `hosts` are opened besides those that the manifests list. Raises ConfigError with a line for
    everything that is wrong in a file.
    """
    opened = tuple(hosts)
    found: list[Tool] = []
    for one in manifests:
        if isinstance(one, Mapping):
            manifest = read_manifest(tree(one, "manifest"), opened=opened, secrets=secrets)
        else:
            manifest = parse_manifest(_bytes(one), str(one), opened=opened, secrets=secrets)
        found += make_tools(manifest, secrets, sender=sender)
    return tuple(found)


def openapi_tools(
    document: str | Path, *, secrets: Secrets = PERSONS, sender: MakeSender = Sender, **choice: Any
) -> tuple[Tool, ...]:
    """The tools of an OpenAPI document (YAML or JSON). `choice` are the fields of `openapi.Choice`:
    `server`, `auth`, `tags`, ...

    Operations that cannot be tools are left out; `ferrule tools import openapi` says which. Raises
    ConfigError.
    """
    manifest, _ = import_document(parse_document(_bytes(document), str(document)), Choice(**choice))
    return make_tools(
        read_manifest(tree(manifest, str(document)), secrets=secrets), secrets, sender=sender
    )


def _bytes(path: str | Path) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
