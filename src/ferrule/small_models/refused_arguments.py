"""Arguments without what their schema refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


def drop_refused(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without optional ones that the schema refuses.

    A required one that is wrong stays: the dispatcher's answer says what is the matter with it, as
    it does where the schema itself is broken.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(dict(schema))
    except (ValueError, jsonschema_rs.ValidationError):
        return arguments
    required = cast("Sequence[str]", schema.get("required") or ())
    for error in list(validator.iter_errors(arguments)):
        name = error.instance_path[0] if error.instance_path else None
        if isinstance(name, str) and name not in required:
            arguments.pop(name, None)
    return arguments
