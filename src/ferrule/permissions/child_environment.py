"""The environment of child processes: a small list passes, whatever looks like a secret does not.

    child = child_environment(os.environ, add=("CARGO_HOME",))
    child.values      what the child gets
    child.withheld    names that were there and are not passed: a failing child's message can name them

Rules: `PASSED` and the prefixes `LC_` pass; `add` passes further names (exact, or with `*` at the
end); names that look like secrets pass only if `add` spells them out in full; `LD_PRELOAD` and the
like never do. Requirement 000's filter is the origin; its `HARVEY_*` hole (every variable of that
prefix passes) is not kept.

Not protected: a secret in a variable with an ordinary name that is on the list.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen

from .commands.program_facts import listed

PASSED = listed("""
    PATH HOME USER USERNAME LOGNAME SHELL TERM COLORTERM LANG LANGUAGE TZ TMPDIR TEMP TMP PWD COLUMNS LINES NO_COLOR
    FORCE_COLOR CLICOLOR XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME VIRTUAL_ENV
    SYSTEMROOT COMSPEC PATHEXT""")
"""Names that every child gets if they are set."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
"""What PATH is where it is not set: programs are always found in the same way."""

_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|SESSION_ID|PRIVATE|BEARER|_PWD$|_PAT$|_AUTH$|^AUTH_|_DSN$|DATABASE_URL|WEBHOOK",
    re.IGNORECASE,
)
# Each of these makes an allowed program run something else.
_LOADS_CODE = re.compile(
    r"LD_.*|DYLD_.*|BASH_ENV|ENV|BASH_FUNC_.*|PROMPT_COMMAND|PS4|SHELLOPTS|BASHOPTS|IFS|PYTHONSTARTUP|PYTHONINSPECT"
    r"|PERL5OPT|PERL5DB|RUBYOPT|NODE_OPTIONS|GIT_SSH|GIT_SSH_COMMAND|GIT_EXTERNAL_DIFF|GIT_PROXY_COMMAND|GIT_CONFIG.*"
    r"|GIT_EXEC_PATH|GIT_ASKPASS|SSH_ASKPASS|GCONV_PATH|GLIBC_TUNABLES"
)


@frozen
class ChildEnvironment:
    """What a child gets, and the names (never the values) of what it does not."""

    values: dict[str, str]
    withheld: tuple[str, ...]

    def missing(self, output: str) -> tuple[str, ...]:
        """Withheld names that a failing child's output mentions: likely why it failed."""
        return tuple(
            name
            for name in self.withheld
            if re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", output)
        )


def looks_secret(name: str) -> bool:
    """True if a variable of this name likely holds a secret."""
    return _SECRET.search(name) is not None


def child_environment(
    parent: Mapping[str, str],
    *,
    add: Iterable[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> ChildEnvironment:
    """Filter an environment. `add` are names that pass too; `overrides` are values set for this
    child.

    Overrides come from Ferrule's settings or a tool's own code, never from a model. ConfigError if
    `add` is no name, or a pattern so wide that it says "everything".
    """
    names = tuple(add)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise ConfigError(
                f"environment: found `{name}`", hint="write names like `CARGO_HOME` or `CARGO_*`"
            )
    exact = frozenset(name for name in names if not name.endswith("*"))
    wild = tuple(name for name in names if name.endswith("*"))
    values = {name: value for name, value in parent.items() if _passes(name, exact, wild)}
    withheld = tuple(sorted(name for name in parent if name not in values))
    values.update(overrides or {})
    values.setdefault("PATH", DEFAULT_PATH)
    return ChildEnvironment(values, withheld)


def _passes(name: str, exact: frozenset[str], wild: tuple[str, ...]) -> bool:
    if _LOADS_CODE.fullmatch(name):
        return False
    if name in exact:
        return True
    if looks_secret(name) and name not in ("PWD",):
        return False
    return (
        name in PASSED
        or name.startswith("LC_")
        or any(fnmatch.fnmatchcase(name, pattern) for pattern in wild)
    )
