"""Grants: what a person has said yes to, for this session or for good.

A grant is an allow rule. Session grants live in memory; remembered ones in a file of the user's
state folder: a JSON array of `{"version": 1, "rule": "Bash(git diff:*)"}`. The reader keeps entries
that it does not know (other versions, other programs) and writes them back unchanged; the writer is
strict, replaces the file at once and makes it readable for its owner only.

Not protected: somebody who can write the user's files can write this one. A file that others may
write, or that belongs to someone else, is not used.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError

from .rules import Rule, parse_rule

VERSION = 1


class Grants:
    """Session and remembered grants. Thread-safe; `rules` is a snapshot that never changes under a
    reader.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.rules: tuple[Rule, ...] = ()
        """All grants now: session first, then remembered."""
        self.problems: tuple[str, ...] = ()
        """What could not be used of the file, in words for a person."""
        self._session: dict[str, Rule] = {}
        self._remembered: dict[str, Rule] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, file: Path) -> Grants:
        """Grants remembered in `file`; a file that is not there holds none.

        Never raises: what cannot be read grants nothing and is named in `problems`.
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
        """What is remembered, with session grants of its own."""
        fresh = Grants(self.file)
        with self._lock:
            fresh._remembered = dict(self._remembered)
        fresh._publish()
        return fresh

    def grant(self, text: str) -> Rule:
        """Allow for this session. Raises ConfigError if `text` is no rule."""
        rule = parse_rule(text, "allow", layer="session")
        with self._lock:
            self._session[rule.text] = rule
            self._publish()
        return rule

    def remember(self, text: str) -> Rule:
        """Allow from now on, durably. Raises ConfigError if `text` is no rule or the file cannot be
        kept.
        """
        rule = parse_rule(text, "allow", layer="user")
        if self.file is None:
            raise ConfigError(
                "nothing can be remembered: no state folder was given",
                hint="allow it for the session",
            )
        with self._lock:
            self._rewrite(self.file, add=rule.text)
        return rule

    def forget(self, text: str) -> bool:
        """Take a grant back, from the session and from the file. False if there was none."""
        with self._lock:
            known = self._session.pop(text, None) or self._remembered.get(text)
            if text in self._remembered and self.file is not None:
                self._rewrite(self.file, drop=text)
            self._publish()
        return known is not None

    def end_session(self) -> None:
        """Drop the session's grants."""
        with self._lock:
            self._session.clear()
            self._publish()

    def remembered(self) -> tuple[str, ...]:
        """The remembered rules as text, sorted."""
        return tuple(sorted(self._remembered))

    def _adopt(self, entries: list[Any]) -> None:
        remembered: dict[str, Rule] = {}
        problems: list[str] = []
        for entry in entries:
            text = _rule_of(entry)
            if text is None:
                problems.append("an entry of another version or kind was left alone")
                continue
            try:
                rule = parse_rule(text, "allow", layer="user")
            except ConfigError as error:
                problems.append(str(error))
                continue
            remembered[rule.text] = rule
        self._remembered, self.problems = remembered, tuple(problems)
        self._publish()

    def _publish(self) -> None:
        both = {**self._remembered, **self._session}
        self.rules = (
            *self._session.values(),
            *(r for t, r in both.items() if t not in self._session),
        )

    def _rewrite(self, file: Path, *, add: str = "", drop: str = "") -> None:
        """Merge with what other processes wrote meanwhile, and replace the file."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(file.with_name(file.name + ".lock")):
                entries = _read(file)
                kept = [entry for entry in entries if _rule_of(entry) != drop or not drop]
                if add and all(_rule_of(entry) != add for entry in kept):
                    kept.append({"version": VERSION, "rule": add})
                _replace(file, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(
                f"grants cannot be kept in `{file}`: {error.strerror}", code="grants_file"
            ) from error
        self._adopt(kept)


def _rule_of(entry: object) -> str | None:
    """The rule text of an entry of a version that we know, else None."""
    if not isinstance(entry, dict):
        return None
    fields = cast("dict[str, object]", entry)
    text = fields.get("rule")
    return text if fields.get("version") == VERSION and isinstance(text, str) else None


def _read(file: Path) -> list[Any]:
    """The entries of a grants file. ConfigError if it is there and cannot be trusted or
    understood.
    """
    hint = "look at the file; remove it to start without remembered grants"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"grants in `{file}` cannot be read: {error.strerror}", code="grants_file", hint=hint
        ) from error
    with os.fdopen(descriptor, "rb") as opened:
        about = os.fstat(opened.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
            found = "is not a file that only its owner can write"
            raise ConfigError(
                f"grants in `{file}` are not used: it {found}", code="grants_file", hint=hint
            )
        try:
            entries = json.loads(opened.read())
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"grants in `{file}` are no JSON: {error}", code="grants_file", hint=hint
            ) from error
    if not isinstance(entries, list):
        raise ConfigError(f"grants in `{file}` are no JSON array", code="grants_file", hint=hint)
    return cast("list[Any]", entries)


def _replace(file: Path, text: str) -> None:
    """Write beside, make durable, rename over: a reader sees the old or the new file."""
    beside = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    descriptor = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(file: Path) -> Generator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
