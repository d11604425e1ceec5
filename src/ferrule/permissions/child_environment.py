"""The environment of child processes: a short list is passed on, what looks like a secret is not.

    child = child_environment(os.environ, add=("CARGO_HOME",))
    child.values      the variables that the child gets
    child.withheld    the names of the others, which the message of a failing child can mention

Names in `PASSED_ON` and those that begin with `LC_` are passed on; `add` passes on further names
(exact, or with `*` at the end). Names that look like secrets are passed on only if `add` contains
their full name; `LD_PRELOAD` and the like never are. This follows the filter of requirement 000
without its `HARVEY_*` hole (every variable with that prefix was passed on).

Not protected: a secret in a variable with an ordinary name that is on the list.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .command_analysis.program_facts import word_set

PASSED_ON = word_set("""
    PATH HOME USER USERNAME LOGNAME SHELL TERM COLORTERM LANG LANGUAGE TZ TMPDIR TEMP TMP PWD
    COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME
    XDG_DATA_HOME XDG_STATE_HOME VIRTUAL_ENV SYSTEMROOT COMSPEC PATHEXT""")
"""Variables that every child gets if they are set."""

INDEXES = word_set("""
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST UV_DEFAULT_INDEX UV_INDEX_URL
    UV_EXTRA_INDEX_URL NPM_CONFIG_REGISTRY npm_config_registry YARN_NPM_REGISTRY_SERVER GOPROXY
    CARGO_REGISTRY_DEFAULT""")
"""Variables that say where packages are: passed on unless they also sign in there."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The value of PATH if it is not set, so that programs are always found in the same way."""

_SECRET = compile_lazily(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|SESSION_ID|PRIVATE|BEARER|_PWD$|_PAT$"
    r"|_AUTH$|^AUTH_|_HEADERS$|_DSN$|DATABASE_URL|WEBHOOK",
    re.IGNORECASE,
)
# Each of these makes an allowed program run something else.
_LOADS_CODE = compile_lazily(
    r"LD_.*|DYLD_.*|BASH_ENV|ENV|BASH_FUNC_.*|PROMPT_COMMAND|PS4|SHELLOPTS|BASHOPTS|IFS"
    r"|PYTHONSTARTUP|PYTHONINSPECT|PERL5OPT|PERL5DB|RUBYOPT|NODE_OPTIONS|GIT_SSH|GIT_SSH_COMMAND"
    r"|GIT_EXTERNAL_DIFF|GIT_PROXY_COMMAND|GIT_CONFIG.*|GIT_EXEC_PATH|GIT_ASKPASS|SSH_ASKPASS"
    r"|GCONV_PATH|GLIBC_TUNABLES"
)


@frozen
class ChildEnvironment:
    """The variables of a child, and the names (never the values) of those it does not get."""

    values: dict[str, str]
    withheld: tuple[str, ...]

    def find_mentioned(self, output: str) -> tuple[str, ...]:
        """Return the withheld names in a failing child's output: likely why it failed."""
        return tuple(
            name
            for name in self.withheld
            if re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", output)
        )


def is_secret_variable(name: str) -> bool:
    """Return whether a variable of this name is likely a secret."""
    return _SECRET.search(name) is not None


def filter_environment(
    parent: Mapping[str, str],
    *,
    add: Iterable[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> ChildEnvironment:
    """Filter an environment for a child process.

    Args:
        parent: The environment to filter.
        add: Further names to pass on, exact or with `*` at the end.
        overrides: Variables to set for this child. They come from Ferrule's settings or a tool's
            own code, never from a model.

    Raises:
        ConfigError: An entry of `add` is not a name, or a pattern that matches everything.
    """
    names = tuple(add)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise ConfigError(
                f"environment: found `{name}`", hint="write names like `CARGO_HOME` or `CARGO_*`"
            )
    exact = frozenset(name for name in names if not name.endswith("*"))
    patterns = tuple(name for name in names if name.endswith("*"))
    values = {
        name: value
        for name, value in parent.items()
        if _is_passed(name, exact, patterns) or (name in INDEXES and "@" not in value)
    }
    withheld = tuple(sorted(name for name in parent if name not in values))
    values.update(overrides or {})
    values.setdefault("PATH", DEFAULT_PATH)
    return ChildEnvironment(values, withheld)


def _is_passed(name: str, exact: frozenset[str], patterns: tuple[str, ...]) -> bool:
    if _LOADS_CODE.fullmatch(name):
        return False
    if name in exact:
        return True
    if is_secret_variable(name) and name != "PWD":
        return False
    if name in PASSED_ON or name.startswith("LC_"):
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
