"""Peers out of a person's settings: `a2a_peers`, a map of names to entries, or a list of entries
with a `name`.

    a2a_peers:
      weather:
        url: https://weather.example.com
        auth: {kind: bearer, value: "${WEATHER_TOKEN}"}
        skills: [forecast]
        trust: medium
        timeout: 60

What a person wrote is read strictly: unknown keys and secrets that stand there themselves are
errors. An entry that cannot be used is left out with a sentence, and the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.tools.reliability import POLICY, policies

from .spec import CARD_PATH, TIMEOUT, A2aPeer, Auth, Origin

KEYS = (
    "name",
    "url",
    "card_path",
    "endpoint",
    "auth",
    "plain_http",
    "keys",
    "skills",
    "without",
    "trust",
    "timeout",
    "policy",
    "tool_policies",
    "loading",
    "identity",
    "disabled",
)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KINDS = ("bearer", "api_key")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Peers in the order they were found, and a sentence for each entry that cannot be used."""

    peers: tuple[A2aPeer, ...]
    problems: tuple[str, ...]
    policy_errors: tuple[str, ...] = ()
    """Those among the problems that say a policy which cannot be read: with these no run begins."""


def load_peers(given: Any) -> Loaded:
    """The peers that settings name. Never raises for what they say."""
    peers: list[A2aPeer] = []
    problems: list[str] = []
    policy_errors: list[str] = []
    try:
        entries = list(_entries(given or ()))
    except ConfigError as error:
        return Loaded((), (str(error).replace("\n", "; "),))
    for name, entry in entries:
        try:
            found = read_peer(name, entry, f"a2a_peers: `{name}`", origin="person")
        except ConfigError as error:
            said = str(error).replace("\n", "; ")
            problems.append(said)
            policy_errors += [said] if error.code == POLICY else []
        else:
            peers += [found] if found is not None else []
    return Loaded(tuple(peers), tuple(problems), tuple(policy_errors))


def _entries(given: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return [(str(name), entry) for name, entry in cast("Mapping[str, Any]", given).items()]
    if isinstance(given, (list, tuple)):
        listed = cast("Iterable[object]", given)
        return [(_name(one), one) for one in listed]
    raise ConfigError("a2a_peers must be a mapping of names to peers, or a list of peers")


def _name(entry: object) -> str:
    return (
        str(cast("Mapping[str, Any]", entry).get("name", "")) if isinstance(entry, Mapping) else ""
    )


def read_peer(name: str, entry: Any, where: str, *, origin: Origin = "person") -> A2aPeer | None:
    """One entry; None if it is switched off (`disabled`). Raises ConfigError naming the key."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs")
    given = cast("Mapping[str, Any]", entry)
    for key in given:
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key `{key}`", hint=f"known: {', '.join(KEYS)}")
    if given.get("disabled") is True:
        return None
    read = _Entry(given, where)
    trust: Any = read.text("trust", "medium")
    keys = read.text("keys")
    return A2aPeer(
        name,
        read.text("url"),
        card_path=read.text("card_path", CARD_PATH),
        endpoint=read.text("endpoint"),
        auth=read.auth(),
        plain_http=read.flag("plain_http"),
        keys=str(Path(keys).expanduser()) if keys else "",
        only=read.texts("skills") if "skills" in given else None,
        without=read.texts("without"),
        trust=trust,
        timeout=read.seconds("timeout", TIMEOUT),
        policies=policies(given.get("policy"), given.get("tool_policies"), where),
        deferred=read.deferred(),
        identity=read.flag("identity"),
        origin=origin,
    )


class _Entry:
    """Takes keys out of an entry by their type. Raises ConfigError naming the key."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self._given = given
        self._where = where

    def text(self, key: str, default: str = "") -> str:
        return self._typed(key, str, "a text", default)

    def flag(self, key: str) -> bool:
        return self._typed(key, bool, "true or false", False)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._typed(key, (list, tuple), "a list of texts", [])
        if not all(isinstance(one, str) for one in found):
            raise ConfigError(f"{self._where}: `{key}` must be a list of texts")
        return tuple(found)

    def seconds(self, key: str, default: float) -> float:
        found = self._given.get(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise ConfigError(f"{self._where}: `{key}` must be a number of seconds")
        return float(found)

    def deferred(self) -> bool:
        said = self.text("loading", "always")
        if said not in ("always", "deferred"):
            raise ConfigError(
                f"{self._where}: `loading` is `{said:.60}`", hint="use `always` or `deferred`"
            )
        return said == "deferred"

    def auth(self) -> Auth | None:
        given = self._given.get("auth")
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise ConfigError(f"{self._where}: `auth` must hold `kind` and `value`")
        said = {str(key): value for key, value in cast("Mapping[str, Any]", given).items()}
        for key in said:
            if key not in ("kind", "header", "value"):
                raise ConfigError(
                    f"{self._where}: unknown key `auth.{key}`", hint="known: kind, header, value"
                )
        kind, header = said.get("kind", "bearer"), said.get("header", "")
        if kind not in _KINDS or not isinstance(header, str) or bool(header) != (kind == "api_key"):
            hint = (
                "`{kind: bearer, value: ${NAME}}`, or "
                "`{kind: api_key, header: X-Api-Key, value: ${NAME}}`"
            )
            raise ConfigError(f"{self._where}: `auth` cannot be read", hint=f"write {hint}")
        named = _REFERENCE.fullmatch(str(said.get("value", "")))
        if named is None:
            raise ConfigError(
                f"{self._where}: `auth.value` must name a variable, and hold no secret itself",
                hint="write `${NAME}`",
            )
        try:
            return Auth(named[1]) if kind == "bearer" else Auth(named[1], header, "")
        except ConfigError as error:
            raise ConfigError(f"{self._where}: {error.detail}", hint=error.hint) from error

    def _typed(self, key: str, kind: Any, said: str, default: Any) -> Any:
        found = self._given.get(key, default)
        if not isinstance(found, kind):
            raise ConfigError(f"{self._where}: `{key}` must be {said}")
        return found
