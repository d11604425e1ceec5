"""`ferrule tools import openapi`: tools out of descriptions that other programs wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ferrule.core.errors import ConfigError
from ferrule.runtime.http_sources import FOLDER
from ferrule.storage import paths


@click.group("import")
def import_() -> None:
    """Make tools out of descriptions that other programs wrote."""


@import_.command("openapi")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the manifest goes; default: standard output.",
)
@click.option("--force", is_flag=True, help="Replace the file that is there.")
@click.option(
    "--namespace",
    default="",
    help="What stands before the names of the tools; default: from the title.",
)
@click.option(
    "--server", default="", help="The service's address, if not the first one of the document."
)
@click.option(
    "--variable", multiple=True, metavar="NAME=VALUE", help="A variable of the address. Repeatable."
)
@click.option(
    "--auth",
    multiple=True,
    metavar="SCHEME=${NAME}",
    help="Where the secret of a security scheme is. Repeatable.",
)
@click.option(
    "--tag",
    multiple=True,
    help="Only operations with this tag; `*` in it is a wildcard. Repeatable.",
)
@click.option("--without-tag", multiple=True, help="No operations with this tag. Repeatable.")
@click.option(
    "--operation",
    multiple=True,
    metavar="NAME",
    help="Only this one, by operationId or as 'GET /path'. Repeatable.",
)
@click.option("--without", multiple=True, metavar="NAME", help="Not this operation. Repeatable.")
@click.option(
    "--deprecated/--no-deprecated", default=True, help="Whether deprecated operations are taken."
)
@click.option(
    "--loading",
    type=click.Choice(["always", "deferred"]),
    default=None,
    help="When a model sees them; default: deferred if they are many.",
)
@click.option(
    "--results/--no-results",
    default=False,
    help="Whether answers are checked against the document.",
)
def openapi(file: Path, out: Path | None, force: bool, **chosen: Any) -> None:
    """Make a manifest out of an OpenAPI document (3.0 or 3.1). Nothing is fetched, and no secret is
    asked for.

    What cannot be a tool is left out and named. Secrets stay references: fill the variables that
    the manifest names.
    """
    from ferrule.cli.terminal import visible
    from ferrule.connectors.http import parse_manifest
    from ferrule.connectors.http.openapi import import_document, parse_document

    if out is not None and out.exists() and not force:
        raise click.UsageError(f"`{out}` is there already; `--force` replaces it")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from error
    manifest, left_out = import_document(parse_document(data, str(file)), _choice(chosen))
    for said in left_out:
        click.echo(visible(f"! {said}"), err=True)
    text = _yaml(manifest)
    # What is written must be what can be read.
    parse_manifest(text.encode(), str(out or file), secrets=None)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
    for line in _told(manifest, out):
        click.echo(visible(line), err=True)


def _choice(chosen: dict[str, Any]) -> Any:
    from ferrule.connectors.http.openapi import Choice

    return Choice(
        namespace=chosen["namespace"],
        server=chosen["server"],
        variables=_pairs("--variable", chosen["variable"]),
        auth=_pairs("--auth", chosen["auth"]),
        tags=chosen["tag"],
        without_tags=chosen["without_tag"],
        operations=chosen["operation"],
        without=chosen["without"],
        deprecated=chosen["deprecated"],
        loading=chosen["loading"] or "",
        results=chosen["results"],
    )


def _pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {one!r}: write NAME=VALUE")
        found[name] = value
    return found


def _yaml(manifest: dict[str, Any]) -> str:
    """The manifest as a file. Many schemas are written as JSON text: a file has a bound on its
    values, and on its size.
    """
    import yaml

    from ferrule.core.calls import compact
    from ferrule.storage.settings.yaml_tree import MAX_BYTES, MAX_NODES

    def written(tool: dict[str, Any]) -> dict[str, Any]:
        return {
            key: compact(value) if key.endswith("_schema") else value for key, value in tool.items()
        }

    if _values(manifest) > MAX_NODES // 2:
        manifest = {**manifest, "tools": [written(tool) for tool in manifest["tools"]]}
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(manifest, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    if len(text.encode()) > MAX_BYTES:
        hint = (
            "choose some with `--tag` or `--operation`, or name the document itself in "
            "`tools.openapi`"
        )
        raise ConfigError(f"the manifest would have more than {MAX_BYTES} bytes", hint=hint)
    return text


def _values(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_values, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _told(manifest: dict[str, Any], out: Path | None) -> list[str]:
    """What a person does next."""
    secrets = [entry["secret"] for entry in manifest.get("auth", {}).values()]
    lines = [f"{len(manifest['tools'])} tools in the namespace `{manifest['namespace']}`"]
    if secrets:
        lines.append(f"secrets to fill in: {', '.join(f'`{one}`' for one in secrets)}")
    if out is not None:
        lines.append(
            f"to use them: put `{out}` into `{paths.config() / FOLDER}`, or name it in "
            "`tools.http_manifests`"
        )
    return lines
