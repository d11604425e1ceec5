"""Recognize a form that asks for a secret: a password, a key, a code, a card.

All that a person would read of it is searched: the names of its fields, their titles, descriptions
and choices, and the message where something can be typed (a yes or a choice gives nothing away).
Texts are compared without invisible characters, accents, case and separators, and with letters and
digits that look like Latin letters read as those.

A word that also means something else (`token`, `pin`, `key`, `code`) counts beside words that make
it a secret, or as the whole name of a field: "token count" and "pin a message" are fine.

NOT known: what is asked for in other words ("what you log in with"), in most languages, or in a
picture; and whether a value that looks harmless (a mother's maiden name, an IBAN) is one to keep.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.lazy_patterns import compile_lazily

_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0501\u0458\u043a\u043c\u0442\u0432\u043d"
    "\u03b1\u03bf\u03c1\u03bd\u03b9\u03ba\u03c4\u0131"
    "01345",
    "aeopcyxisdjkmtbhaopviktioieas",
)
"""Cyrillic, Greek and Turkish letters, and digits, as the Latin letters that they look like."""
_INSIDE_WORDS = (
    "password|passwd|passphrase|passcode|passwort|kennwort|wachtwoord|apikey|secretkey|privatekey"
    "|accesstoken|authtoken|contrasena|\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6\u7801|\u5bc6\u78bc"
)
"""Found inside of longer words too (`githubpassword`)."""
_ALONE = (
    "password",
    "passphrase",
    "passcode",
    "passwort",
    "kennwort",
    "motdepasse",
    "senha",
    "pw",
    "pwd",
    "secret",
    "credential",
    "apikey",
    "otp",
    "totp",
    "cvv",
    "cvc",
    "ssn",
    "socialsecuritynumber",
    "mnemonic",
)
"""Found as words of their own, whatever separates their letters (`pass_word`)."""
_BEFORE_KEY = (
    "api|private|secret|access|ssh|gpg|pgp|encryption|decryption|signing|master|recovery|security"
    "|account|wallet|deploy|license|licence|service|auth|your"
)
_BEFORE_TOKENS = "access|api|auth|bearer|refresh|security|session|secret|personal|login"
_BEFORE_CODE = (
    "one ?time|verification|recovery|backup|security|access|auth|authentication|authenticator"
    "|2 ?fa|mfa|sms|login|digit|pin"
)
_AFTER_TOKEN = (
    "count|counts|limit|limits|budget|usage|window|number|type|length|size|ring|based|economy"
)
_NOT_BEFORE_TOKEN = ("max", "maximum", "min", "per", "each", "every", "next", "stop")
_NAMES = frozenset(
    ("key", "token", "auth", "pin", "pass", "pat", "cookie", "bearer", "mfa", "tan", "psw", "dsn")
)
"""Names of fields that ask for a secret though the word alone would not."""


def _allow_spaces(word: str) -> str:
    return " ?".join(word)


_SECRET = compile_lazily(
    f"{_INSIDE_WORDS}"
    f"|(?<![a-z])(?:{'|'.join(map(_allow_spaces, _ALONE))})(?:s|[0-9]+)?(?![a-z])"
    f"|\\b(?:{_BEFORE_KEY}) ?keys?\\b"
    f"|\\b{''.join(f'(?<!{word} )' for word in _NOT_BEFORE_TOKEN)}token\\b"
    f"(?! (?:{_AFTER_TOKEN})\\b)"
    f"|\\b(?:{_BEFORE_TOKENS}) ?tokens\\b"
    f"|\\b(?:{_BEFORE_CODE}) ?codes?\\b"
    r"|\b(?:(?:your|digit|card|sim|bank|account|security) ?pin"
    r"|(?:enter|type|provide|give)(?: me)?(?: (?:your|the|a))? pin)\b"
    r"|\bpin (?:code|number)s?\b"
    r"|\b(?:card|credit ?card|debit ?card|bank ?card|creditcard) ?(?:number|no|details|data)\b"
    r"|\bcredit ?card\b|\bcreditcard"
    r"|\b(?:seed|recovery|backup|secret|mnemonic|wallet) ?(?:phrase|words)s?\b"
    r"|\bmot de passe\b|\b2 ?fa\b"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\W_]+")
_MAX_TEXT = 100_000
"""Characters of a field that are searched; one with more is refused."""


def find_secret(message: str, fields: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where a form asks for a secret: the name of a field, `message`, or an empty string."""
    for name, field in fields.items():
        text = "\n".join(_texts(field))
        is_named = any(plain.replace(" ", "") in _NAMES for plain in _normalize(name))
        is_hidden = field.get("format") == "password" or field.get("writeOnly") is True
        if is_named or is_hidden or len(text) > _MAX_TEXT or _mentions_secret(f"{name}\n{text}"):
            return name
    if any(map(_takes_text, fields.values())) and _mentions_secret(message):
        return "message"
    return ""


def _mentions_secret(text: str) -> bool:
    return any(_SECRET.search(plain) for line in text.splitlines() for plain in _normalize(line))


def _normalize(text: str) -> tuple[str, str]:
    """Return the words of a text in small letters, and the same with lookalikes as Latin."""
    shown = clean_text(text).replace("@", "a").replace("$", "s")
    decomposed = unicodedata.normalize(
        "NFKD", _CAMEL.sub(" ", unicodedata.normalize("NFKC", shown))
    )
    letters = "".join(one for one in decomposed if not unicodedata.combining(one))
    plain = _SEPARATORS.sub(" ", letters.casefold()).strip()
    return plain, plain.translate(_LOOKALIKES)


def _takes_text(field: Mapping[str, Any]) -> bool:
    """Return whether something can be typed into a field."""
    return field.get("type") not in ("boolean", "array") and not field.keys() & {"enum", "oneOf"}


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield every text in a field's schema."""
    if isinstance(value, str):
        yield value
    elif depth < 8 and isinstance(value, Mapping):
        for item in cast("Mapping[str, Any]", value).values():
            yield from _texts(item, depth + 1)
    elif depth < 8 and isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item, depth + 1)
