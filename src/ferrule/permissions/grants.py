"""Grants: allow rules that a person granted when asked, for the session or permanently.

Session grants live in memory; remembered ones in a file in the user's state folder: a JSON array of
`{"version": 1, "rule": "Bash(git diff:*)"}`. The reader keeps entries that it does not know (other
versions, other programs) and writes them back unchanged. The writer is strict, replaces the file
atomically and makes it readable for its owner only.

Not protected: whoever can write the user's files can write this one. A file that others may write,
or that belongs to someone else, is not used.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.tools.forking import make_lock

from .rules import PermissionRule, parse_rule

GRANTS_VERSION = 1


class Grants:
    """Session grants and remembered grants. Thread-safe."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.rules: tuple[PermissionRule, ...] = ()
        """All grants, those of the session first. A snapshot: changes replace the tuple."""
        self.problems: tuple[str, ...] = ()
        """What could not be used of the file, for people."""
        self._session: dict[str, PermissionRule] = {}
        self._remembered: dict[str, PermissionRule] = {}
        self._lock = make_lock()

    @classmethod
    def load(cls, file: Path) -> Grants:
        """Load the grants remembered in `file`, which need not exist.

        Never raises: what cannot be read grants nothing and is reported in `problems`.
        """
        grants = cls(file)
        try:
            entries = _read(file)
        except ConfigError as error:
            grants.problems = (str(error),)
            return grants
        grants._adopt(entries)
        return grants

    def for_session(self) -> Grants:
        """Return the remembered grants with no session grants yet."""
        grants = Grants(self.file)
        with self._lock:
            grants._remembered = dict(self._remembered)
            if not self._session:
                # The same tuple: what is known of these rules stays known.
                grants.rules = self.rules
                return grants
        grants._publish()
        return grants

    def grant(self, text: str) -> PermissionRule:
        """Grant a rule for this session. Raises ConfigError if `text` is not a rule."""
        rule = parse_rule(text, "allow", layer="session")
        with self._lock:
            self._session[rule.text] = rule
            self._publish()
        return rule

    def remember(self, text: str) -> PermissionRule:
        """Grant a rule permanently.

        Raises:
            ConfigError: `text` is not a rule, or the file cannot be written.
        """
        rule = parse_rule(text, "allow", layer="user")
        if self.file is None:
            raise ConfigError(
                "grants cannot be remembered: no state folder was given",
                hint="allow it for the session",
            )
        with self._lock:
            self._rewrite(self.file, add=rule.text)
        return rule

    def forget(self, text: str) -> bool:
        """Revoke a grant, in the session and in the file. Return whether there was one."""
        with self._lock:
            known = self._session.pop(text, None) or self._remembered.get(text)
            if text in self._remembered and self.file is not None:
                self._rewrite(self.file, drop=text)
            self._publish()
        return known is not None

    def _adopt(self, entries: list[Any]) -> None:
        remembered: dict[str, PermissionRule] = {}
        problems: list[str] = []
        for entry in entries:
            text = _rule_of(entry)
            if text is None:
                problems.append("an entry of another version or kind was ignored")
                continue
            try:
                rule = parse_rule(text, "allow", layer="user")
            except ConfigError as error:
                problems.append(str(error))
                continue
            remembered[rule.text] = rule
        self._remembered = remembered
        self.problems = tuple(problems)
        self._publish()

    def _publish(self) -> None:
        only_remembered = [
            rule for text, rule in self._remembered.items() if text not in self._session
        ]
        self.rules = (*self._session.values(), *only_remembered)

    def _rewrite(self, file: Path, *, add: str = "", drop: str = "") -> None:
        """Apply a change to what other processes may have written meanwhile; replace the file."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock_file(file.with_name(file.name + ".lock")):
                entries = _read(file)
                kept = [entry for entry in entries if _rule_of(entry) != drop or not drop]
                if add and all(_rule_of(entry) != add for entry in kept):
                    kept.append({"version": GRANTS_VERSION, "rule": add})
                _replace_file(file, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(
                f"grants cannot be stored in `{file}`: {error.strerror}", code="grants_file"
            ) from error
        self._adopt(kept)


def _rule_of(entry: object) -> str | None:
    """Return the rule of an entry in a version that we know, else None."""
    if not isinstance(entry, dict):
        return None
    fields = cast("dict[str, object]", entry)
    text = fields.get("rule")
    return text if fields.get("version") == GRANTS_VERSION and isinstance(text, str) else None


def _read(file: Path) -> list[Any]:
    """Return the entries of a grants file. Raises ConfigError if it cannot be trusted or read."""
    hint = "look at the file; remove it to start without remembered grants"
    try:
        with open(file, "rb", opener=_open_without_waiting) as opened:
            status = os.fstat(opened.fileno())
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if not is_own or status.st_mode & 0o022:
                raise ConfigError(
                    f"grants in `{file}` are not used: it is not a file that only its owner can "
                    "write",
                    code="grants_file",
                    hint=hint,
                )
            text = opened.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"grants in `{file}` cannot be read: {error.strerror}", code="grants_file", hint=hint
        ) from error
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"grants in `{file}` are not JSON: {error}", code="grants_file", hint=hint
        ) from error
    if not isinstance(entries, list):
        raise ConfigError(f"grants in `{file}` are not a JSON array", code="grants_file", hint=hint)
    return cast("list[Any]", entries)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a path, but no link, and wait for no pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _replace_file(file: Path, text: str) -> None:
    """Write a new file, flush it to disk and rename it: readers see the old or the new file."""
    temporary = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _lock_file(file: Path) -> Generator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
