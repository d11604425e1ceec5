"""Built-ins that only compute.

Each takes and returns JSON values. A ValueError or TypeError is an error of the script. Regular
expressions are RE2's (https://github.com/google/re2/wiki/Syntax): no look-around and no
back-references, and therefore time that is linear in the text, whatever the pattern. A built-in
that takes too long blocks the worker, until the owner's timeout ends it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

PATTERN_LIMIT = 4_096
"""Characters of a regular expression at most."""
PATTERN_MEMORY = 8 << 20
"""Bytes that one compiled expression may take."""
MATCHES_LIMIT = 10_000
"""Matches that one call finds at most."""
PAD_LIMIT = 1 << 20
_FIELD = re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}")
_REFERENCE = re.compile(r"\\(?:([1-9][0-9]?)|g<(\w+)>|(.|$))", re.DOTALL)
_ESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+")


def match(pattern: str, text: str) -> dict[str, Any] | None:
    """Return the match at the beginning of `text`, or None: {match, groups, named, start, end}."""
    return _describe_match(_compile(pattern).match(text))


def search(pattern: str, text: str) -> dict[str, Any] | None:
    """Return the first match anywhere, like `match`."""
    return _describe_match(_compile(pattern).search(text))


def findall(pattern: str, text: str) -> list[Any]:
    """Return all matches: texts without groups or with one, else a list of groups for each."""
    found: list[Any] = []
    for one in _matches(_compile(pattern), text):
        if len(found) == MATCHES_LIMIT:
            raise ValueError(
                f"re.findall: more than {MATCHES_LIMIT} matches; search a smaller text"
            )
        groups = list(one.groups(""))
        if len(groups) > 1:
            found.append(groups)
        else:
            found.append(groups[0] if groups else one.group())
    return found


def replace(pattern: str, replacement: str, text: str) -> str:
    r"""Replace every match; `\1` and `\g<name>` stand for groups."""
    pieces: list[str] = []
    end = 0
    for one in _matches(_compile(pattern), text):
        pieces += (text[end : one.start()], _expand(one, replacement))
        end = one.end()
    return "".join([*pieces, text[end:]])


def split(pattern: str, text: str) -> list[str | None]:
    """Return the pieces between matches, and the groups of each match."""
    pieces: list[str | None] = []
    end = 0
    for number, one in enumerate(_matches(_compile(pattern), text)):
        if number == MATCHES_LIMIT:
            break
        pieces += (text[end : one.start()], *one.groups())
        end = one.end()
    return [*pieces, text[end:]]


def truncate(text: str, most: int) -> str:
    """Return the first `most` characters."""
    if most < 0:
        raise ValueError(f"string.truncate: a length of {most}")
    return text[:most]


def pad_left(text: str, width: int, fill: str = " ") -> str:
    """Put `fill` before `text` until it is `width` characters long."""
    return text.rjust(_check_width(width), fill)


def pad_right(text: str, width: int, fill: str = " ") -> str:
    """Put `fill` after `text` until it is `width` characters long."""
    return text.ljust(_check_width(width), fill)


def trim(text: str) -> str:
    """Remove white space around `text`."""
    return text.strip()


def upper(text: str) -> str:
    """Convert to capitals."""
    return text.upper()


def lower(text: str) -> str:
    """Convert to small letters."""
    return text.lower()


def split_text(text: str, separator: str | None = None) -> list[str]:
    """Return the pieces between separators; without one, between white space."""
    return text.split(separator)


def join_texts(parts: list[Any], separator: str = "") -> str:
    """Join the parts; those that are not text are written as JSON."""
    return separator.join(
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in parts
    )


def least(*values: Any) -> Any:
    """Return the smallest of some values, or of one list."""
    return min(*values)


def most(*values: Any) -> Any:
    """Return the largest of some values, or of one list."""
    return max(*values)


def sha256(text: str) -> str:
    """Return the SHA-256 of the text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha1(text: str) -> str:
    """Return the SHA-1 of the text in UTF-8, in hexadecimal: for comparing, not for secrets."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def sha512(text: str) -> str:
    """Return the SHA-512 of the text in UTF-8, in hexadecimal."""
    return hashlib.sha512(text.encode()).hexdigest()


def md5(text: str) -> str:
    """Return the MD5 of the text in UTF-8, in hexadecimal: for comparing, not for secrets."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def encode_base64(text: str) -> str:
    """Encode the text in UTF-8 as base64."""
    return base64.b64encode(text.encode()).decode()


def decode_base64(text: str) -> str:
    """Decode base64 to text. Raises ValueError if it is not UTF-8."""
    return base64.b64decode(text, validate=True).decode()


def parse_url(text: str) -> dict[str, Any]:
    """Return {scheme, host, port, path, query, fragment}.

    `query` maps each name to its last value.
    """
    parts = urllib.parse.urlsplit(text)
    query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    return {
        "scheme": parts.scheme,
        "host": parts.hostname or "",
        "port": parts.port,
        "path": parts.path,
        "query": query,
        "fragment": parts.fragment,
    }


def encode_url(values: dict[str, Any] | str) -> str:
    """Return a query string of names and values, or a text quoted for use in a URL."""
    if isinstance(values, str):
        return urllib.parse.quote(values, safe="")
    return urllib.parse.urlencode({name: str(value) for name, value in values.items()})


def hmac_sha256(key: str, text: str) -> str:
    """Return the HMAC-SHA-256 of the text, in hexadecimal."""
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def hmac_sha512(key: str, text: str) -> str:
    """Return the HMAC-SHA-512 of the text, in hexadecimal."""
    return hmac.new(key.encode(), text.encode(), hashlib.sha512).hexdigest()


# Sets are lists in which each value occurs once, so that they can be results and keep their order.


def new_set(values: list[Any] | None = None) -> list[Any]:
    """Return the values, each once, in their order."""
    return _without_repeats([*(values or [])])


def size(values: list[Any]) -> int:
    """Return the number of different values."""
    return len(_without_repeats(values))


def contains(values: list[Any], value: Any) -> bool:
    """Return whether the value is in the list."""
    return value in values


def union(first: list[Any], second: list[Any]) -> list[Any]:
    """Return what is in either list, each once, in order."""
    return _without_repeats([*first, *second])


def intersection(first: list[Any], second: list[Any]) -> list[Any]:
    """Return what is in both lists, each once, in the order of the first."""
    return [one for one in _without_repeats(first) if one in second]


def difference(first: list[Any], second: list[Any]) -> list[Any]:
    """Return what is in the first list and not in the second, each once."""
    return [one for one in _without_repeats(first) if one not in second]


def symmetric_difference(first: list[Any], second: list[Any]) -> list[Any]:
    """Return what is in one of the lists and not in the other, each once."""
    return [*difference(first, second), *difference(second, first)]


def is_subset(first: list[Any], second: list[Any]) -> bool:
    """Return whether everything in the first list is in the second."""
    return all(one in second for one in first)


def render(template: str, values: dict[str, Any]) -> str:
    """Fill in each `{{path.to.value}}` of a template.

    A path that leads nowhere is an error that names it.
    """

    def fill(found: re.Match[str]) -> str:
        value: Any = values
        for step in found[1].split("."):
            if not isinstance(value, dict) or step not in value:
                raise ValueError(f"template.render: there is no `{found[1]}`")
            value = value[step]  # pyright: ignore[reportUnknownVariableType] - JSON
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _FIELD.sub(fill, template)


def is_email(text: str) -> bool:
    """Return whether a text looks like an email address: one `@`, a name, a domain with a dot."""
    return len(text) <= 254 and _EMAIL.fullmatch(text) is not None


def is_url(text: str) -> bool:
    """Return whether the text is an http or https URL with a host."""
    try:
        parts = urllib.parse.urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        return False


def is_json(text: str) -> bool:
    """Return whether the text is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def check(condition: Any, message: Any = "an assertion does not hold") -> None:
    """Fail with `message` unless the condition is true, as Starlark counts."""
    if not condition:
        raise ValueError(
            message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
        )


def block(reason: str = "") -> dict[str, Any]:
    """Return the answer with which a hook blocks."""
    return {"action": "block", "reason": reason}


def allow() -> dict[str, Any]:
    """Return the answer with which a hook allows."""
    return {"action": "allow"}


def modify(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with which a hook changes its payload."""
    return {"action": "modify", "payload": payload}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "re.match": match,
    "re.search": search,
    "re.findall": findall,
    "re.find_all": findall,
    "re.replace": replace,
    "re.split": split,
    "string.truncate": truncate,
    "string.pad_left": pad_left,
    "string.pad_right": pad_right,
    "string.trim": trim,
    "string.upper": upper,
    "string.lower": lower,
    "string.split": split_text,
    "string.join": join_texts,
    "math.abs": abs,
    "math.min": least,
    "math.max": most,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.round": round,
    "hash.sha256": sha256,
    "hash.sha1": sha1,
    "hash.sha512": sha512,
    "hash.md5": md5,
    "base64.encode": encode_base64,
    "base64.decode": decode_base64,
    "url.parse": parse_url,
    "url.encode": encode_url,
    "crypto.hmac_sha256": hmac_sha256,
    "crypto.hmac_sha512": hmac_sha512,
    "set.new": new_set,
    "set.values": new_set,
    "set.size": size,
    "set.contains": contains,
    "set.union": union,
    "set.intersection": intersection,
    "set.intersect": intersection,
    "set.difference": difference,
    "set.diff": difference,
    "set.symmetric_difference": symmetric_difference,
    "set.is_subset": is_subset,
    "template.render": render,
    "validate.email": is_email,
    "validate.url": is_url,
    "validate.json": is_json,
    "block": block,
    "allow": allow,
    "modify": modify,
    "assert": check,
}
"""By full name. `names.WORKER_BUILTINS` lists the same (a test compares them)."""


def _compile(pattern: str) -> Any:
    if len(pattern) > PATTERN_LIMIT:
        raise ValueError(
            f"re: a pattern of {len(pattern)} characters, the bound is {PATTERN_LIMIT}"
        )
    re2 = _load_re2()
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail: Any = error.args[0]
        if isinstance(detail, bytes):
            detail = detail.decode("utf-8", "replace")
        raise ValueError(
            f"re: the pattern cannot be read: {detail} (RE2 syntax: no look-around, no "
            "back-references)"
        ) from None


def _load_re2() -> Any:
    # Only workers need it, and they load it before they lock themselves down.
    import re2  # pyright: ignore[reportMissingImports]  an extra, without types

    return re2


def _matches(compiled: Any, text: str) -> Iterator[Any]:
    """Yield every match in order. google-re2 gives an empty match that lies ahead a second time."""
    last: tuple[int, int] | None = None
    for one in compiled.finditer(text):
        if one.span() != last:
            last = one.span()
            yield one


def _expand(one: Any, replacement: str) -> str:
    """Return the replacement of one match. RE2's own `expand` corrupts what is not ASCII."""

    def piece(reference: re.Match[str]) -> str:
        number, name, escape = reference.groups()
        if escape is not None:
            if escape not in _ESCAPES:
                raise ValueError(f"re.replace: bad escape `\\{escape}` in the replacement")
            return _ESCAPES[escape]
        group = number or name
        try:
            return one[int(group) if group.isdecimal() else group] or ""
        except IndexError:
            raise ValueError(f"re.replace: the pattern has no group `{group}`") from None

    return _REFERENCE.sub(piece, replacement)


def _describe_match(one: Any) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "match": one.group(),
        "groups": list(one.groups()),
        "named": one.groupdict(),
        "start": one.start(),
        "end": one.end(),
    }


def _check_width(width: int) -> int:
    if width > PAD_LIMIT:
        raise ValueError(f"string: a width of {width}, the bound is {PAD_LIMIT}")
    return width


def _without_repeats(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
