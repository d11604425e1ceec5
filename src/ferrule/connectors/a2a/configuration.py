"""A2A peers from a person's settings: `a2a_peers`, a mapping of names to entries, or a list.

    a2a_peers:
      weather:
        url: https://weather.example.com
        auth: {kind: bearer, value: "${WEATHER_TOKEN}"}
        skills: [forecast]
        trust: medium
        timeout: 60

The entries of a list have a `name`. They are read strictly: unknown keys and literal secrets are
errors. An entry that cannot be used is left out with a sentence; the others count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty, text_or_empty
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.tools.reliability import POLICY_ERROR, read_policies

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


@frozen
class LoadedPeers:
    """Peers in the order they were found, and a sentence for each entry that cannot be used."""

    peers: tuple[A2aPeer, ...]
    problems: tuple[str, ...]
    policy_errors: tuple[str, ...] = ()
    """The problems that are an unreadable policy; with these no run begins."""


def load_peers(settings: Any) -> LoadedPeers:
    """Return the peers of the settings. Never raises for what they say."""
    peers: list[A2aPeer] = []
    problems: list[str] = []
    policy_errors: list[str] = []
    try:
        entries = list(_entries(settings or ()))
    except ConfigError as error:
        return LoadedPeers((), (str(error).replace("\n", "; "),))
    for name, entry in entries:
        try:
            peer = read_peer(name, entry, f"a2a_peers: `{name}`", origin="person")
        except ConfigError as error:
            problem = str(error).replace("\n", "; ")
            problems.append(problem)
            if error.code == POLICY_ERROR:
                policy_errors.append(problem)
        else:
            if peer is not None:
                peers.append(peer)
    return LoadedPeers(tuple(peers), tuple(problems), tuple(policy_errors))


def _entries(settings: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(settings, Mapping):
        return [(str(name), entry) for name, entry in cast("Mapping[str, Any]", settings).items()]
    if isinstance(settings, (list, tuple)):
        entries = cast("Iterable[object]", settings)
        return [(text_or_empty(mapping_or_empty(entry).get("name")), entry) for entry in entries]
    raise ConfigError("a2a_peers must be a mapping of names to peers, or a list of peers")


def read_peer(name: str, entry: Any, where: str, *, origin: Origin = "person") -> A2aPeer | None:
    """Read one entry; return None if it is `disabled`. Raises ConfigError naming the key."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs")
    given = cast("Mapping[str, Any]", entry)
    for key in given:
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key `{key}`", hint=f"known: {', '.join(KEYS)}")
    if given.get("disabled") is True:
        return None
    reader = _EntryReader(given, where)
    trust: Any = reader.text("trust", "medium")
    keys = reader.text("keys")
    return A2aPeer(
        name,
        reader.text("url"),
        card_path=reader.text("card_path", CARD_PATH),
        endpoint=reader.text("endpoint"),
        auth=reader.auth(),
        plain_http=reader.flag("plain_http"),
        keys=str(Path(keys).expanduser()) if keys else "",
        only=reader.texts("skills") if "skills" in given else None,
        without=reader.texts("without"),
        trust=trust,
        timeout=reader.seconds("timeout", TIMEOUT),
        policies=read_policies(given.get("policy"), given.get("tool_policies"), where),
        deferred=reader.deferred(),
        identity=reader.flag("identity"),
        origin=origin,
    )


class _EntryReader:
    """Takes values of the expected type out of an entry. Raises ConfigError naming the key."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self._given = given
        self._where = where

    def text(self, key: str, default: str = "") -> str:
        return self._get_typed(key, str, "a text", default)

    def flag(self, key: str) -> bool:
        return self._get_typed(key, bool, "true or false", False)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._get_typed(key, (list, tuple), "a list of texts", [])
        if not all(isinstance(text, str) for text in found):
            raise ConfigError(f"{self._where}: `{key}` must be a list of texts")
        return tuple(found)

    def seconds(self, key: str, default: float) -> float:
        found = self._given.get(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise ConfigError(f"{self._where}: `{key}` must be a number of seconds")
        return float(found)

    def deferred(self) -> bool:
        loading = self.text("loading", "always")
        if loading not in ("always", "deferred"):
            raise ConfigError(
                f"{self._where}: `loading` is `{loading:.60}`", hint="use `always` or `deferred`"
            )
        return loading == "deferred"

    def auth(self) -> Auth | None:
        given = self._given.get("auth")
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise ConfigError(f"{self._where}: `auth` must hold `kind` and `value`")
        fields = {str(key): value for key, value in cast("Mapping[str, Any]", given).items()}
        for key in fields:
            if key not in ("kind", "header", "value"):
                raise ConfigError(
                    f"{self._where}: unknown key `auth.{key}`", hint="known: kind, header, value"
                )
        kind = fields.get("kind", "bearer")
        header = fields.get("header", "")
        if kind not in _KINDS or not isinstance(header, str) or bool(header) != (kind == "api_key"):
            hint = (
                "`{kind: bearer, value: ${NAME}}`, or "
                "`{kind: api_key, header: X-Api-Key, value: ${NAME}}`"
            )
            raise ConfigError(f"{self._where}: `auth` cannot be read", hint=f"write {hint}")
        reference = _REFERENCE.fullmatch(str(fields.get("value", "")))
        if reference is None:
            raise ConfigError(
                f"{self._where}: `auth.value` must name a variable and hold no secret",
                hint="write `${NAME}`",
            )
        try:
            return Auth(reference[1]) if kind == "bearer" else Auth(reference[1], header, "")
        except ConfigError as error:
            raise ConfigError(f"{self._where}: {error.detail}", hint=error.hint) from error

    def _get_typed(self, key: str, kind: Any, expected: str, default: Any) -> Any:
        found = self._given.get(key, default)
        if not isinstance(found, kind):
            raise ConfigError(f"{self._where}: `{key}` must be {expected}")
        return found
