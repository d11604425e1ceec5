"""Redaction: secrets taken out of what is shown to others than the one who needs them.

For events on their way to subscribers, for telemetry and for exports. Never for what a tool is run
with, what the journal keeps or what an approver is shown: a redacted approval would be an approval
of something else.

In place of a secret stands `[redacted sha256:1a2b3c4d]`, the start of its SHA-256: equal secrets
stay recognizable as equal. Short ones have no digest, because few guesses would find them
(`SHORTEST_DIGEST`); a longer one that is a dictionary word can still be guessed. Redacting twice is
redacting once.

What a secret looks like is in `secret_patterns`. Objects are searched by the names of their
members, texts by form; text that is JSON itself (arguments of calls) is searched as an object. The
person's own patterns are Rust's expressions and cannot be made to hang; they are tried on lines,
and take out the words that match alone, or else the whole line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.tools.safe_patterns import compile_regex

from .child_environment import looks_secret
from .secret_patterns import FORMS, names_secret, words_of

SHORTEST_DIGEST = 12
"""Characters that a secret must have for its digest to be shown."""
SHORTEST_VALUE = 8
"""Characters that a known secret must have to be looked for: shorter ones stand in ordinary text.
"""
SETTLED = 16
"""How often a text is searched at the most, each time for what came to light by the time before."""
NESTED = 4
"""JSON within text within JSON: so many times it is searched as objects, below that as text."""

_MARK = re.compile(r"\[redacted(?: sha256:[0-9a-f]{8})?\]")
# ASCII: a key that stands directly behind a letter of another script begins there all the same.
_FORMS = [(form.signs, re.compile(form.pattern, re.ASCII)) for form in FORMS]
_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secrets",
    "token",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "cookies",
    *(
        f"{first}{gap}{last}"
        for first, last in (
            ("api", "key"),
            ("access", "key"),
            ("account", "key"),
            ("private", "key"),
            ("secret", "key"),
            ("signing", "key"),
            ("shared", "key"),
            ("service", "key"),
            ("encryption", "key"),
            ("connection", "string"),
        )
        for gap in ("", "_", "-", " ")
    ),
)
# What follows a name where something is assigned to it: `password: x`, `TOKEN=x`, `"api_key": "x"`,
# also with escaped quotes.
_ASSIGNED = re.compile(
    r"""\\*["']?[ \t]{0,8}[:=]>?[ \t]{0,8}(?!(?:bearer|basic|digest|token)[ \t]{1,4}\[redacted)"""
    r"""(?:(?P<quote>\\*["'])(?P<quoted>[^\n]*?)(?:(?P=quote)|$)"""
    r"""|(?:(?:bearer|basic|digest|token)[ \t]{1,4})?(?P<bare>[^\s"'`,;&<>(){}\[\]\\]{3,}+))""",
    re.IGNORECASE | re.MULTILINE,
)
_CALLED = ("(", "[", "{", "<")
_NAME_SIGNS = (
    "passw",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "auth",
    "credential",
    "cookie",
    "bearer",
    "jwt",
    "otp",
    "_key",
    "-key",
    " key",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "signingkey",
    "sharedkey",
    "servicekey",
    "encryptionkey",
    "masterkey",
    "clientkey",
    "licensekey",
    "connection",
)
_SIGNS = tuple(dict.fromkeys((*_NAME_SIGNS, *(sign for form in FORMS for sign in form.signs))))


def mark(secret: str) -> str:
    """What stands in a secret's place."""
    if len(secret) < SHORTEST_DIGEST:
        return "[redacted]"
    return f"[redacted sha256:{sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}]"


class Redactor:
    """Takes secrets out of texts and JSON values. Without state between calls: safe to use from
    several threads.

    `keys` are more names under which secrets stand, compared by words (`X-Internal-Id` is
    `x_internal_id`). `patterns` are expressions for more values. `values` are secrets that are
    known as such and taken out wherever they stand. Raises ConfigError for a pattern that cannot be
    read: whoever asked for it must not believe that it holds.
    """

    def __init__(
        self, keys: Iterable[str] = (), patterns: Iterable[str] = (), *, values: Iterable[str] = ()
    ) -> None:
        self._keys = frozenset("_".join(words_of(key)) for key in keys)
        self._values = tuple(
            sorted({v for v in values if len(v) >= SHORTEST_VALUE}, key=len, reverse=True)
        )
        self._own = [_compiled(pattern) for pattern in patterns]
        # Own names and patterns, and values that JSON spells in another way, cannot be ruled out by
        # a look at the encoded text.
        odd = any(encode_basestring(value) != f'"{value}"' for value in self._values)
        self._always = bool(self._own) or bool(self._keys) or odd

    @property
    def by_line(self) -> bool:
        """Whether a secret may hold spaces, so that text that arrives in pieces must be looked at
        by lines.
        """
        return bool(self._own) or any(
            any(sign.isspace() for sign in value) for value in self._values
        )

    @staticmethod
    def of_process(
        environment: Mapping[str, str], keys: Iterable[str] = (), patterns: Iterable[str] = ()
    ) -> Redactor:
        """One that also knows the values of the variables whose names look secret."""
        values = (value for name, value in environment.items() if looks_secret(name))
        return Redactor(keys, patterns, values=values)

    def body(self, text: str) -> str:
        """JSON text without secrets: the same text if it holds none. Raises ValueError for what is
        no JSON.
        """
        if not self.may_hold(text):
            return text
        value = json.loads(text)
        redacted = self._walked(value, 0)
        return text if redacted == value else compact(redacted)

    def value(self, value: Any) -> Any:
        """A JSON value without secrets; the given one is left as it is."""
        return self._walked(value, 0)

    def text(self, text: str) -> str:
        """Text without secrets."""
        return self._text(text, 0)

    # ---- values

    def may_hold(self, text: str) -> bool:
        """Whether a closer look is needed: most of what is said is ruled out here, by searches that
        cost next to nothing.

        False also means that the text holds no beginning of a secret that goes on in the same line.
        """
        if self._always or "\\u" in text:
            return True
        low = text.lower()
        return any(sign in low for sign in _SIGNS) or any(value in text for value in self._values)

    def _walked(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, depth)
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {
                self._text(str(name), depth): _hidden(item)
                if self._secret(str(name))
                else self._walked(item, depth)
                for name, item in members.items()
            }
        if isinstance(value, list | tuple):
            return [self._walked(item, depth) for item in cast("list[Any]", value)]
        return value

    def _secret(self, name: str) -> bool:
        return names_secret(name) or (bool(self._keys) and "_".join(words_of(name)) in self._keys)

    # ---- text

    def _text(self, text: str, depth: int) -> str:
        if not self.may_hold(text):
            return text
        if depth < NESTED and text.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(text)
            except ValueError:
                return self._plain(text)
            redacted = self._walked(value, depth + 1)
            if redacted != value:
                return compact(redacted)
        # Also where nothing was found in the object: of two members with one name, it holds the
        # last.
        return self._plain(text)

    def _plain(self, text: str) -> str:
        # Until nothing changes: where a secret was taken out, another one may begin.
        for _ in range(SETTLED):
            before, text = text, self._once(text)
            if text == before:
                break
        return text

    def _once(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, mark(value))
        low = text.lower()
        for signs, pattern in _FORMS:
            if any(sign in low for sign in signs):
                text = pattern.sub(_replaced, text)
        text = _unassigned(text)
        return "\n".join(self._line(line) for line in text.split("\n")) if self._own else text

    def _line(self, line: str) -> str:
        if _MARK.fullmatch(line) or not any(found(line) for found in self._own):
            return line
        parts = re.split(r"(\[redacted(?: sha256:[0-9a-f]{8})?\]|\s+)", line)
        kept = [
            part if number % 2 or not any(found(part) for found in self._own) else mark(part)
            for number, part in enumerate(parts)
        ]
        # What matched only as a whole, or still does: with the whole line, so that nothing is left
        # over.
        if kept == parts or any(found(_MARK.sub("", "".join(kept))) for found in self._own):
            return mark(line)
        return "".join(kept)


def _compiled(pattern: str) -> Callable[[str], bool]:
    try:
        found = compile_regex(pattern)
    except ValueError as error:
        raise ConfigError(f"redaction pattern: {error}", code="redaction_pattern") from error
    if found(""):
        raise ConfigError(
            f"redaction pattern `{pattern}` matches everything", code="redaction_pattern"
        )
    return found


def _hidden(value: Any) -> Any:
    """What stands under a secret's name, hidden. Yes, no and nothing say nothing."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    if isinstance(value, str) and _MARK.fullmatch(value):
        return value
    return mark(value if isinstance(value, str) else compact(value))


def _replaced(match: re.Match[str]) -> str:
    return _with(match, "secret" if "secret" in match.re.groupindex else 0)


def _unassigned(text: str) -> str:
    """Text without what is assigned to secret names. Candidates are found by plain searches: most
    text has none.
    """
    low = text.lower()
    if len(low) != len(text):
        # One letter becomes two in lower case; its place is needed, not its case.
        low = "".join(sign if len(sign.lower()) != 1 else sign.lower() for sign in text)
    ends = sorted({end for name in _NAMES if name in low for end in _ends(low, name)})
    parts: list[str] = []
    done = 0
    for end in ends:
        match = _ASSIGNED.match(text, end) if end >= done else None
        if match is None:
            continue
        # What is called or indexed is code, not a value: `token = get_token()`.
        code = match["bare"] is not None and text[match.end() : match.end() + 1] in _CALLED
        parts += (text[done : match.start()], match[0] if code else _shown(match))
        done = match.end()
    return "".join((*parts, text[done:])) if parts else text


def _ends(low: str, name: str) -> Iterator[int]:
    at = low.find(name)
    while at >= 0:
        yield at + len(name)
        at = low.find(name, at + len(name))


def _shown(match: re.Match[str]) -> str:
    if match["quoted"] is None:
        return _with(match, "bare")
    return (
        match[0]
        if not match["quoted"] or _MARK.fullmatch(match["quoted"])
        else _with(match, "quoted")
    )


def _with(match: re.Match[str], group: str | int) -> str:
    whole, begin = match[0], match.start()
    return (
        whole[: match.start(group) - begin] + mark(match[group]) + whole[match.end(group) - begin :]
    )
