"""Plugins of other distributions, found by the entry points of the group `ferrule.plugins`.

Nothing of them is imported: the metadata of installed packages is read as text, and the manifest
`ferrule-plugin.toml` beside the module that an entry point names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily

from .manifests import Manifest, read_manifest, read_shipped_manifests
from .metadata_index import HEADER, find_metadata

GROUP = "ferrule.plugins"
FILE_NAME = "ferrule-plugin.toml"
RESERVED = ("installed",)
"""Names that no plugin may have: `plugins.installed` is a setting."""

_METADATA = compile_lazily(r"(?P<name>[^/]+)-(?P<version>[^-/]+)\.dist-info")
_NAME = compile_lazily(r"[a-z][a-z0-9_]*")


@cache
def find_installed_manifests() -> Mapping[str, Manifest]:
    """Return the manifests of installed plugins by name, sorted.

    Raises:
        ConfigError: A plugin has a name that another one has, or that no plugin may have.
    """
    found: dict[str, Manifest] = {}
    for manifest in chain.from_iterable(starmap(_read_entry_points, find_metadata())):
        earlier = found.get(manifest.name) or read_shipped_manifests().get(manifest.name)
        if earlier is None:
            found[manifest.name] = manifest
        elif earlier.distribution != manifest.distribution:
            raise ConfigError(
                f"two plugins are named `{manifest.name}`: of `{manifest.distribution}` and of "
                f"`{earlier.distribution or 'Ferrule'}`",
                code="plugin_conflict",
                hint=f"uninstall one: `pip uninstall {manifest.distribution}`",
            )
    return dict(sorted(found.items()))


def _read_entry_points(folder: str, metadata: str) -> Iterator[Manifest]:
    matched = _METADATA.fullmatch(metadata)
    try:
        data = (Path(folder) / metadata / "entry_points.txt").read_bytes()
    except OSError:
        return
    if matched is None or HEADER not in data:
        return
    distribution = matched["name"]
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]  names keep their case
    try:
        parser.read_string(data.decode())
        entries = parser.items(GROUP)
    except (Error, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the entry points of `{distribution}` cannot be read: {error}",
            hint=f"reinstall it, or `pip uninstall {distribution}`",
        ) from error
    for name, target in entries:
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise ConfigError(
                f"`{distribution}` brings a plugin with the name `{name}`, which none may have",
                code="plugin_invalid",
                hint="a name is of small letters, digits and `_`, and not `installed`",
            )
        manifest = _read_manifest(name, target.strip(), distribution, folder)
        yield replace(manifest, version=matched["version"])


def read_package_manifest(name: str, package: str) -> Manifest:
    """Return the manifest in a package's folder for the plugin of this name."""
    return _read_manifest(name, package, package, "")


def _read_manifest(name: str, target: str, distribution: str, folder: str) -> Manifest:
    """Return what the manifest says; the defaults of all fields if there is none."""
    # Most commands meet no installed plugin.
    from .manifest_keys import check_manifest

    code = _find_code(target.partition(":")[0].split(".")[0])
    file, table, problems = _read_file(code)
    valid, more = check_manifest(table)
    if not file:
        # Nobody says that it restricts nothing.
        valid["needs"] = {"restricts": True}
    words = {"object": target, "default": True, "project": "never"}
    described = {"help": f"Installed with `{distribution}`.", **valid, **words}
    return replace(
        read_manifest(name, described),
        distribution=distribution,
        places=(folder or ".", *code),
        file=file,
        problems=(*problems, *more),
    )


def _read_file(code: Iterable[str]) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return the path of the manifest in these folders, what is in it, and why it cannot be read.

    The path is "" if there is no manifest.
    """
    for file in (Path(one) / FILE_NAME for one in code):
        try:
            return str(file), tomllib.loads(file.read_text("utf-8")), ()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            return str(file), {}, (f"it cannot be read: {error}",)
    return "", {}, ()


def _find_code(package: str) -> tuple[str, ...]:
    """Return where a package would be imported from. It is not imported."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    return tuple(spec.submodule_search_locations or filter(None, (spec.origin,)))
