"""`ferrule tools import openapi`: make tools from an OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import click

from ferrule.cli.new_files import write_named_file
from ferrule.cli.terminal import escape_invisible
from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths
from ferrule.storage.settings.yaml_tree import MAX_BYTES, MAX_NODES

with lazy_imports():
    from ferrule.connectors.http import loading
    from ferrule.connectors.http import manifest as manifests
    from ferrule.connectors.http.openapi import document, importer


@click.group("import", cls=CommandGroup)
def import_() -> None:
    """Make tools from descriptions in other formats."""


@import_.command("openapi")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the manifest to (default: standard output).",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--namespace",
    default="",
    help="Prefix of the tools' names (default: from the title).",
)
@click.option(
    "--server", default="", help="Address of the service (default: the first one in the document)."
)
@click.option(
    "--variable", multiple=True, metavar="NAME=VALUE", help="A variable of the address. Repeatable."
)
@click.option(
    "--auth",
    multiple=True,
    metavar="SCHEME=${NAME}",
    help="Variable that holds the secret of a security scheme. Repeatable.",
)
@click.option(
    "--tag",
    multiple=True,
    help="Only operations with this tag; `*` in it is a wildcard. Repeatable.",
)
@click.option(
    "--without-tag", multiple=True, help="Leave out operations with this tag. Repeatable."
)
@click.option(
    "--operation",
    multiple=True,
    metavar="NAME",
    help="Only this operation, by operationId or as 'GET /path'. Repeatable.",
)
@click.option(
    "--without", multiple=True, metavar="NAME", help="Leave out this operation. Repeatable."
)
@click.option(
    "--deprecated/--no-deprecated", default=True, help="Whether to include deprecated operations."
)
@click.option(
    "--loading",
    type=click.Choice(["always", "deferred"]),
    default=None,
    help="When a model sees the tools (default: deferred if there are many).",
)
@click.option(
    "--results/--no-results",
    default=False,
    help="Whether to check responses against the document.",
)
def openapi(file: Path, out: Path | None, force: bool, **chosen: Any) -> None:
    """Make a manifest from an OpenAPI document (3.0 to 3.2, or Swagger 2).

    Nothing is fetched, and no secret is needed. Operations that cannot become a tool are left out
    and named. Secrets stay references: set the variables that the manifest names.
    """
    if out is not None and out.exists() and not force:
        raise click.UsageError(f"`{out}` exists already; `--force` replaces it")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from error
    manifest, left_out = importer.import_document(
        document.parse_document(data, str(file)), _make_choice(chosen)
    )
    for problem in left_out:
        click.echo(escape_invisible(f"! {problem}"), err=True)
    text = _to_yaml(manifest)
    # Never write a manifest that cannot be loaded.
    manifests.parse_manifest(text.encode(), str(out or file), secrets=None)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_named_file(out, text)
    for line in _next_steps(manifest, out):
        click.echo(escape_invisible(line), err=True)


def _make_choice(chosen: dict[str, Any]) -> Any:
    return importer.ImportChoice(
        namespace=chosen["namespace"],
        server=chosen["server"],
        variables=_parse_pairs("--variable", chosen["variable"]),
        auth=_parse_pairs("--auth", chosen["auth"]),
        tags=chosen["tag"],
        without_tags=chosen["without_tag"],
        operations=chosen["operation"],
        without=chosen["without"],
        deprecated=chosen["deprecated"],
        loading=chosen["loading"] or "",
        results=chosen["results"],
    )


def _parse_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def _to_yaml(manifest: dict[str, Any]) -> str:
    """Write the manifest as YAML. If it has too many values, its schemas are written as JSON text.

    A file is limited in its number of values and in its size.
    """
    import yaml

    def with_schemas_as_text(tool: dict[str, Any]) -> dict[str, Any]:
        return {
            key: encode_json(value) if key.endswith("_schema") else value
            for key, value in tool.items()
        }

    if _count_values(manifest) > MAX_NODES // 2:
        tools = [with_schemas_as_text(tool) for tool in manifest["tools"]]
        manifest = {**manifest, "tools": tools}
    # Any: the type of `width` is not known in some releases of the stubs.
    library = cast("Any", yaml)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = library.dump(manifest, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    if len(text.encode()) > MAX_BYTES:
        hint = (
            "choose some with `--tag` or `--operation`, or name the document itself in "
            "`tools.openapi`"
        )
        raise ConfigError(f"the manifest would have more than {MAX_BYTES} bytes", hint=hint)
    return text


def _count_values(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count_values, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, list):
        return 1 + sum(map(_count_values, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return 1


def _next_steps(manifest: dict[str, Any], out: Path | None) -> list[str]:
    """Say what a person does next."""
    secrets = [entry["secret"] for entry in manifest.get("auth", {}).values()]
    lines = [f"{len(manifest['tools'])} tools in the namespace `{manifest['namespace']}`"]
    if secrets:
        lines.append(f"secrets to set: {', '.join(f'`{one}`' for one in secrets)}")
    if out is not None:
        lines.append(
            f"to use them: put `{out}` into `{paths.config() / loading.SETTINGS_FOLDER}`, or name "
            "it in `tools.http_manifests`"
        )
    return lines
