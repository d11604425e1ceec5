"""What is said of an error in a plugin's code: the error, and the line of the author's in it."""

from __future__ import annotations

from traceback import walk_tb

from ferrule.core.errors import ConfigError, FerruleError


def describe_failure(error: BaseException, module: str) -> str:
    """Return an error's type, text and place; of one of Ferrule's own, which says both, the text.

    Args:
        error: What was raised.
        module: A module of the plugin: the place is the last line of the same package.
    """
    if isinstance(error, FerruleError):
        return error.detail
    place = _find_place(error, module.partition(".")[0])
    text = f"{type(error).__name__}: {error}"
    return f"{text} (at {place})" if place else text


def explain_failure(
    plugin: str, distribution: str, error: BaseException, module: str
) -> ConfigError:
    """Return the error for a person whose installed plugin cannot be loaded or set up."""
    return ConfigError(
        f"the plugin `{plugin}` of `{distribution}` cannot be used: "
        f"{describe_failure(error, module)}",
        code="plugin_failed",
        hint=f"switch it off: `plugins: {{{plugin}: false}}` or `--no-plugins`",
    )


def _find_place(error: BaseException, package: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            place = f"{frame.f_code.co_filename}:{line}"
    return place
