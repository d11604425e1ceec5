"""Redaction: removes secrets from what others than their owner see.

It is for events sent to subscribers, for telemetry and for exports. It is never applied to the
arguments of a tool, to the journal or to what an approver sees: a redacted approval would be an
approval of something else.

A secret is replaced by `[redacted sha256:1a2b3c4d]`, the start of its SHA-256, so equal secrets
can be recognized as equal. Short ones get no digest, because it would be easy to guess
(`MIN_DIGEST_LENGTH`); a longer one that is a dictionary word can still be guessed. Redacting twice
changes nothing more.

`secret_patterns` defines what a secret looks like. Objects are searched by the names of their
members, texts by format; text that is JSON itself (arguments of calls) is searched as an object. A
person's own patterns are RE2's expressions, which cannot be made to hang. They are tried on lines:
the words that match are replaced, or else the whole line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.tools.safe_patterns import compile_regex

from .child_environment import is_secret_variable
from .secret_patterns import SECRET_FORMATS, is_secret_name, split_words

MIN_DIGEST_LENGTH = 12
"""The fewest characters of a secret whose digest is shown."""

MIN_VALUE_LENGTH = 8
"""The fewest characters of a known value that is searched for: shorter ones occur in any text."""

MAX_SEARCHES = 16
"""How often a text is searched at most: replacing one secret can uncover another."""

MAX_JSON_DEPTH = 4
"""How many levels of JSON inside JSON text are searched as objects; below, JSON is just text."""

_MARK = compile_lazily(r"\[redacted(?: sha256:[0-9a-f]{8})?\]")
# ASCII: a key that directly follows a letter of another script is still found.
_FORMS = [(form.signs, compile_lazily(form.pattern, re.ASCII)) for form in SECRET_FORMATS]
_GAPS = ("", "_", "-", " ")
"""What stands between the words of a name in its spellings."""
_KEY_NAMES = (
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
    *(f"{first}{gap}{last}" for first, last in _KEY_NAMES for gap in _GAPS),
)
# What follows a name in an assignment: `password: x`, `TOKEN=x`, `"api_key": "x"`, also with
# escaped quotes.
_ASSIGNMENT = compile_lazily(
    r"""\\*["']?[ \t]{0,8}[:=]>?[ \t]{0,8}(?!(?:bearer|basic|digest|token)[ \t]{1,4}\[redacted)"""
    r"""(?:(?P<quote>\\*["'])(?P<quoted>[^\n]*?)(?:(?P=quote)|$)"""
    r"""|(?:(?:bearer|basic|digest|token)[ \t]{1,4})?(?P<bare>[^\s"'`,;&<>(){}\[\]\\]{3,}+))""",
    re.IGNORECASE | re.MULTILINE,
)
_CODE_FOLLOWS = ("(", "[", "{", "<")
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
_SIGNS = tuple(
    dict.fromkeys((*_NAME_SIGNS, *(sign for form in SECRET_FORMATS for sign in form.signs)))
)


def make_mark(secret: str) -> str:
    """Return what replaces a secret."""
    if len(secret) < MIN_DIGEST_LENGTH:
        return "[redacted]"
    return f"[redacted sha256:{sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}]"


class Redactor:
    """Removes secrets from texts and JSON values. Stateless, so safe to share between threads.

    Args:
        keys: Further names whose values are secret, compared by words (`X-Internal-Id` is
            `x_internal_id`).
        patterns: Expressions for further secrets.
        values: Known secrets, which are removed wherever they occur, also single lines of them.

    Raises:
        ConfigError: A pattern is invalid, or matches everything.
    """

    def __init__(
        self, keys: Iterable[str] = (), patterns: Iterable[str] = (), *, values: Iterable[str] = ()
    ) -> None:
        words = [found for key in keys if (found := split_words(key))]
        self._keys = frozenset(map("_".join, words))
        self._spellings = tuple({gap.join(key) for key in words for gap in _GAPS})
        # Text that streams is searched line by line, so each line of a secret is one too.
        parts = {part for value in values for part in (value, *value.splitlines())}
        known = {part for part in parts if len(part.strip()) >= MIN_VALUE_LENGTH}
        self._values = tuple(sorted(known, key=len, reverse=True))
        self._patterns = [_compile(pattern) for pattern in patterns]
        # Keys, patterns, and values that JSON escapes cannot be ruled out by a quick search.
        is_escaped = any(encode_basestring(value) != f'"{value}"' for value in self._values)
        self._always_searches = bool(self._patterns) or bool(self._keys) or is_escaped

    @property
    def needs_whole_lines(self) -> bool:
        """True if a secret may contain spaces, so that streamed text must be redacted by lines."""
        if self._patterns:
            return True
        return any(character.isspace() for value in self._values for character in value)

    @staticmethod
    def for_environment(
        environment: Mapping[str, str], keys: Iterable[str] = (), patterns: Iterable[str] = ()
    ) -> Redactor:
        """Return a redactor that knows the values of variables whose names look secret."""
        values = (value for name, value in environment.items() if is_secret_variable(name))
        return Redactor(keys, patterns, values=values)

    def redact_json(self, text: str) -> str:
        """Return JSON text without secrets: the same text if it contains none.

        Raises:
            ValueError: The text is not JSON.
        """
        if not self.may_contain_secret(text):
            return text
        value = parse_json(text)
        redacted = self._redact_value(value, 0)
        return text if redacted == value else encode_json(redacted)

    def redact_value(self, value: Any) -> Any:
        """Return a copy of a JSON value without secrets."""
        return self._redact_value(value, 0)

    def redact_text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redact_text(text, 0)

    def may_contain_secret(self, text: str) -> bool:
        """Return whether a text may contain a secret. Fast, and false for most texts.

        False also means that the text does not end with the start of a secret that continues in
        the same line.
        """
        if self._always_searches or "\\u" in text:
            return True
        lower = text.lower()
        # Without a generator: this runs for every piece of text that streams.
        return any(map(lower.__contains__, _SIGNS)) or any(map(text.__contains__, self._values))

    # ---- values

    def _redact_value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._redact_text(value, depth)
        if isinstance(value, dict):
            redacted: dict[str, Any] = {}
            for key, item in cast("dict[str, Any]", value).items():
                name = str(key)
                shown_name = self._redact_text(name, depth)
                if self._is_secret_name(name):
                    redacted[shown_name] = _hide(item)
                else:
                    redacted[shown_name] = self._redact_value(item, depth)
            return redacted
        if isinstance(value, list | tuple):
            return [self._redact_value(item, depth) for item in cast("list[Any]", value)]
        return value

    def _is_secret_name(self, name: str) -> bool:
        return is_secret_name(name) or (
            bool(self._keys) and "_".join(split_words(name)) in self._keys
        )

    # ---- text

    def _redact_text(self, text: str, depth: int) -> str:
        if not self.may_contain_secret(text):
            return text
        if depth < MAX_JSON_DEPTH and text.lstrip()[:1] in ("{", "["):
            try:
                value = parse_json(text)
            except ValueError:
                return self._redact_plain_text(text)
            redacted = self._redact_value(value, depth + 1)
            if redacted != value:
                return encode_json(redacted)
        # Also if nothing was found in the object: of two members with the same name, it has only
        # the last one.
        return self._redact_plain_text(text)

    def _redact_plain_text(self, text: str) -> str:
        for _ in range(MAX_SEARCHES):
            redacted = self._search_once(text)
            if redacted == text:
                break
            text = redacted
        return text

    def _search_once(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, make_mark(value))
        lower = text.lower()
        for signs, pattern in _FORMS:
            if any(sign in lower for sign in signs):
                text = pattern.sub(_redact_form, text)
        text = _redact_assignments(text, self._spellings)
        if not self._patterns:
            return text
        return "\n".join(self._redact_line(line) for line in text.split("\n"))

    def _redact_line(self, line: str) -> str:
        if _MARK.fullmatch(line) or not self._matches_pattern(line):
            return line
        parts = re.split(r"(\[redacted(?: sha256:[0-9a-f]{8})?\]|\s+)", line)
        redacted = list(parts)
        for index in range(0, len(parts), 2):  # the others are separators
            if self._matches_pattern(parts[index]):
                redacted[index] = make_mark(parts[index])
        joined = "".join(redacted)
        # If only the line as a whole matches, or still does, all of it is replaced.
        if redacted == parts or self._matches_pattern(_MARK.sub("", joined)):
            return make_mark(line)
        return joined

    def _matches_pattern(self, text: str) -> bool:
        return any(matches(text) for matches in self._patterns)


def _compile(pattern: str) -> Callable[[str], bool]:
    try:
        matches = compile_regex(pattern)
    except ValueError as error:
        raise ConfigError(f"redaction pattern: {error}", code="redaction_pattern") from error
    if matches(""):
        raise ConfigError(
            f"redaction pattern `{pattern}` matches everything", code="redaction_pattern"
        )
    return matches


def _hide(value: Any) -> Any:
    """Replace the value of a secret name. Null, booleans and empty text reveal nothing."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    if isinstance(value, str) and _MARK.fullmatch(value):
        return value
    return make_mark(value if isinstance(value, str) else encode_json(value))


def _redact_form(match: re.Match[str]) -> str:
    return _replace_group(match, "secret" if "secret" in match.re.groupindex else 0)


def _redact_assignments(text: str, own: Sequence[str]) -> str:
    """Replace what is assigned to secret names, and to a person's own in any spelling."""
    parts: list[str] = []
    done = 0
    for end in _ends_of_names(text, own):
        match = _ASSIGNMENT.match(text, end) if end >= done else None
        if match is None:
            continue
        parts += (text[done : match.start()], _redact_assignment(text, match))
        done = match.end()
    return "".join((*parts, text[done:])) if parts else text


def _ends_of_names(text: str, own: Sequence[str]) -> list[int]:
    """Return the positions behind secret names. Plain searches: most texts have none.

    Behind what makes any name secret that ends with it; a person's own are whole names.
    """
    lower = text.lower()
    if len(lower) != len(text):
        # A letter became two in lower case. Positions matter, not its case.
        letters = [letter.lower() for letter in text]
        lower = "".join(
            low if len(low) == 1 else letter for letter, low in zip(text, letters, strict=True)
        )
    ends: set[int] = set()
    for name, is_whole in (*((name, False) for name in _NAMES), *((name, True) for name in own)):
        start = lower.find(name)
        while start >= 0:
            end = start + len(name)
            if not (is_whole and text[start - 1 : start].isalnum()):
                ends.add(end)
            start = lower.find(name, end)
    return sorted(ends)


def _redact_assignment(text: str, match: re.Match[str]) -> str:
    if match["bare"] is not None:
        # What is called or indexed is code, not a value: `token = get_token()`.
        is_code = text[match.end() : match.end() + 1] in _CODE_FOLLOWS
        return match[0] if is_code else _replace_group(match, "bare")
    if not match["quoted"] or _MARK.fullmatch(match["quoted"]):
        return match[0]
    return _replace_group(match, "quoted")


def _replace_group(match: re.Match[str], group: str | int) -> str:
    start = match.start(group) - match.start()
    end = match.end(group) - match.start()
    return match[0][:start] + make_mark(match[group]) + match[0][end:]
