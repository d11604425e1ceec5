"""Built-ins that only compute. Each takes and returns JSON values; a ValueError or TypeError is the
script's error.

Regular expressions are RE2's (https://github.com/google/re2/wiki/Syntax): no look-around and no
back-references, and therefore time that is linear in the text, whatever the pattern. A built-in
that takes too long holds the worker, and the owner's wall clock ends the worker.
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
"""Characters of a regular expression at the most."""
PATTERN_MEMORY = 8 << 20
"""Bytes that one compiled expression may take."""
MATCHES_LIMIT = 10_000
"""Matches that one call finds at the most."""
PAD_LIMIT = 1 << 20
_FIELD = re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}")
_REFERENCE = re.compile(r"\\(?:([1-9][0-9]?)|g<(\w+)>|(.|$))", re.DOTALL)
_ESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+")


def match(pattern: str, text: str) -> dict[str, Any] | None:
    """The match at the beginning of `text`: {match, groups, named, start, end}; None without
    one.
    """
    return _found(_compiled(pattern).match(text))


def search(pattern: str, text: str) -> dict[str, Any] | None:
    """The first match anywhere, as `match`."""
    return _found(_compiled(pattern).search(text))


def findall(pattern: str, text: str) -> list[Any]:
    """All matches: texts without groups or with one, else a list of groups for each."""
    found: list[Any] = []
    for one in _matches(_compiled(pattern), text):
        if len(found) == MATCHES_LIMIT:
            raise ValueError(
                f"re.findall: more than {MATCHES_LIMIT} matches; search a smaller text"
            )
        groups = list(one.groups(""))
        found.append(one.group() if not groups else groups[0] if len(groups) == 1 else groups)
    return found


def replace(pattern: str, replacement: str, text: str) -> str:
    """`text` with every match replaced; `\\1` and `\\g<name>` stand for groups."""
    pieces: list[str] = []
    end = 0
    for one in _matches(_compiled(pattern), text):
        pieces += (text[end : one.start()], _expand(one, replacement))
        end = one.end()
    return "".join([*pieces, text[end:]])


def split(pattern: str, text: str) -> list[str | None]:
    """The pieces between matches, and the groups of each match."""
    pieces: list[str | None] = []
    end = 0
    for number, one in enumerate(_matches(_compiled(pattern), text)):
        if number == MATCHES_LIMIT:
            break
        pieces += (text[end : one.start()], *one.groups())
        end = one.end()
    return [*pieces, text[end:]]


def truncate(text: str, most: int) -> str:
    """The first `most` characters."""
    if most < 0:
        raise ValueError(f"string.truncate: a length of {most}")
    return text[:most]


def pad_left(text: str, width: int, fill: str = " ") -> str:
    """`text` with `fill` before it until it is `width` characters long."""
    return text.rjust(_width(width), fill)


def pad_right(text: str, width: int, fill: str = " ") -> str:
    """`text` with `fill` after it until it is `width` characters long."""
    return text.ljust(_width(width), fill)


def trim(text: str) -> str:
    """`text` without white space around it."""
    return text.strip()


def upper(text: str) -> str:
    """`text` in capitals."""
    return text.upper()


def lower(text: str) -> str:
    """`text` in small letters."""
    return text.lower()


def split_text(text: str, separator: str | None = None) -> list[str]:
    """The pieces between separators; without one, between white space."""
    return text.split(separator)


def join_texts(parts: list[Any], separator: str = "") -> str:
    """The parts in one text; what is no text is written as JSON."""
    return separator.join(
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in parts
    )


def least(*values: Any) -> Any:
    """The smallest of some values, or of one list."""
    return min(*values)


def most(*values: Any) -> Any:
    """The largest of some values, or of one list."""
    return max(*values)


def sha256(text: str) -> str:
    """The SHA-256 of the text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha1(text: str) -> str:
    """The SHA-1 of the text in UTF-8, in hexadecimal: for comparing, not for secrets."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def sha512(text: str) -> str:
    """The SHA-512 of the text in UTF-8, in hexadecimal."""
    return hashlib.sha512(text.encode()).hexdigest()


def md5(text: str) -> str:
    """The MD5 of the text in UTF-8, in hexadecimal: for comparing, not for secrets."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def encode_base64(text: str) -> str:
    """The text in UTF-8 as base64."""
    return base64.b64encode(text.encode()).decode()


def decode_base64(text: str) -> str:
    """The text that base64 stands for. Raises ValueError if that is no UTF-8."""
    return base64.b64decode(text, validate=True).decode()


def parse_url(text: str) -> dict[str, Any]:
    """{scheme, host, port, path, query, fragment}; `query` maps each name to its last value."""
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
    """A query string of names and values; of a text, the text as one piece of an address."""
    if isinstance(values, str):
        return urllib.parse.quote(values, safe="")
    return urllib.parse.urlencode({name: str(value) for name, value in values.items()})


def hmac_sha256(key: str, text: str) -> str:
    """The HMAC-SHA-256 of the text, in hexadecimal."""
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def hmac_sha512(key: str, text: str) -> str:
    """The HMAC-SHA-512 of the text, in hexadecimal."""
    return hmac.new(key.encode(), text.encode(), hashlib.sha512).hexdigest()


# Sets are lists in which each value is once: so they can be results, and what goes in comes out in
# its order.


def new_set(values: list[Any] | None = None) -> list[Any]:
    """The values, each once, in the order they came."""
    return _once([*(values or [])])


def size(values: list[Any]) -> int:
    """How many different values there are."""
    return len(_once(values))


def contains(values: list[Any], value: Any) -> bool:
    """Whether the value is among them."""
    return value in values


def union(first: list[Any], second: list[Any]) -> list[Any]:
    """What is in either list, each once, in the order it came."""
    return _once([*first, *second])


def intersection(first: list[Any], second: list[Any]) -> list[Any]:
    """What is in both lists, each once, in the order of the first."""
    return [one for one in _once(first) if one in second]


def difference(first: list[Any], second: list[Any]) -> list[Any]:
    """What is in the first list and not in the second, each once."""
    return [one for one in _once(first) if one not in second]


def symmetric_difference(first: list[Any], second: list[Any]) -> list[Any]:
    """What is in one of the lists and not in the other, each once."""
    return [*difference(first, second), *difference(second, first)]


def is_subset(first: list[Any], second: list[Any]) -> bool:
    """Whether all that is in the first list is in the second."""
    return all(one in second for one in first)


def render(template: str, values: dict[str, Any]) -> str:
    """`template` with each `{{path.to.value}}` filled in. A path that leads nowhere is an error
    that names it.
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
    """Whether the text has the form of an address: one `@`, a name before it, a domain with a dot
    after it.
    """
    return len(text) <= 254 and _EMAIL.fullmatch(text) is not None


def is_url(text: str) -> bool:
    """Whether the text is an http or https address with a host."""
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
    """Whether the text is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def check(condition: Any, message: Any = "an assertion does not hold") -> None:
    """Fail with `message` unless the condition holds, as Starlark counts: nothing, zero and what is
    empty do not.
    """
    if not condition:
        raise ValueError(
            message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
        )


def block(reason: str = "") -> dict[str, Any]:
    """What a hook returns to refuse."""
    return {"action": "block", "reason": reason}


def allow() -> dict[str, Any]:
    """What a hook returns to let pass."""
    return {"action": "allow"}


def modify(payload: dict[str, Any]) -> dict[str, Any]:
    """What a hook returns to change what it was given."""
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
"""By full name; `names.COMPUTED` lists the same (a test compares them)."""


def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_LIMIT:
        raise ValueError(
            f"re: a pattern of {len(pattern)} characters, the bound is {PATTERN_LIMIT}"
        )
    re2 = _engine()
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said: Any = error.args[0]
        shown = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        raise ValueError(
            f"re: the pattern cannot be read: {shown} (RE2 syntax: no look-around, no "
            "back-references)"
        ) from None


def _engine() -> Any:
    # Only workers need it, and they load it before they may open nothing any more.
    import re2  # pyright: ignore[reportMissingImports]  an extra, without types

    return re2


def _matches(compiled: Any, text: str) -> Iterator[Any]:
    """Every match in its order. google-re2 gives an empty match that lies ahead a second time."""
    last: tuple[int, int] | None = None
    for one in compiled.finditer(text):
        if one.span() != last:
            last = one.span()
            yield one


def _expand(one: Any, replacement: str) -> str:
    """The replacement of one match. RE2's own `expand` spoils what is not ASCII."""

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


def _found(one: Any) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "match": one.group(),
        "groups": list(one.groups()),
        "named": one.groupdict(),
        "start": one.start(),
        "end": one.end(),
    }


def _width(width: int) -> int:
    if width > PAD_LIMIT:
        raise ValueError(f"string: a width of {width}, the bound is {PAD_LIMIT}")
    return width


def _once(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
