"""What `--schema` and `--schema-multi` name: a file with a JSON Schema, a notation, or a type."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ferrule.cli.import_path import allow_named_modules
from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.tools.schema_notation import parse_schema_notation

_TYPE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


def read_schema_option(given: str, *, multi: bool = False) -> Any:
    """Return the output type that an option names; with `multi`, the type of a list of it.

    Raises:
        ConfigError: There is no such file or type, or it is not a schema.
    """
    found = _read(given.strip())
    if not multi:
        return found
    if not isinstance(found, dict):
        return list[found]
    item = dict(cast("dict[str, Any]", found))
    moved = {name: item.pop(name) for name in ("$defs", "definitions") if name in item}
    return {"type": "array", "items": item, **moved}


def _read(given: str) -> Any:
    path = Path(given)
    if path.suffix == ".json" or _is_file(path):
        return _read_file(path)
    match = _TYPE.fullmatch(given)
    if match is not None:
        return _load_type(match["module"], match["name"])
    return parse_schema_notation(given)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A notation can be longer than a file's name may be.
        return False


def _read_file(path: Path) -> dict[str, Any]:
    try:
        schema: Any = parse_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--schema: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--schema: {path} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(f"--schema: {path} is not a JSON Schema", hint="it begins with `{`")
    return cast("dict[str, Any]", schema)


def _load_type(module: str, name: str) -> Any:
    """Return a type by its module and name; the module may be a file below the current folder."""
    allow_named_modules()
    try:
        found: ModuleType = import_module(module)
    except ModuleNotFoundError as error:
        found = _load_file(module, error)
    if not hasattr(found, name):
        raise ConfigError(f"--schema: the module `{module}` has no `{name}`")
    return getattr(found, name)


def _load_file(module: str, missing: ModuleNotFoundError) -> ModuleType:
    # The folder does not become a place of imports: its files could pose as other modules.
    path = Path(*module.split(".")).with_suffix(".py")
    spec = spec_from_file_location(module, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"--schema: there is no module `{module}`", hint=f"neither installed nor {path} here"
        ) from missing
    loaded = module_from_spec(spec)
    sys.modules[module] = loaded
    try:
        spec.loader.exec_module(loaded)
    except (ImportError, SyntaxError, LookupError, NameError, TypeError, ValueError) as error:
        del sys.modules[module]
        raise ConfigError(f"--schema: {path} cannot be loaded: {error}") from error
    return loaded
