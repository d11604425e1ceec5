"""Which forms of servers ask for a secret, and which only sound like it."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.connectors.mcp.elicitation import read_form, refusal_reason

TEXT = {"type": "string"}
YES = {"type": "boolean"}

SECRET: list[tuple[str, dict[str, Any]]] = [
    ("Please enter your GitHub password", {"answer": TEXT}),
    ("Your pass\u200bword, please", {"answer": TEXT}),
    ("What is your P A S S W O R D?", {"answer": TEXT}),
    ("Paste your token", {"answer": TEXT}),
    ("Type the six-digit code", {"answer": {"type": "integer"}}),
    ("Enter the PIN", {"answer": TEXT}),
    ("Enter the verification code from the SMS", {"answer": TEXT}),
    ("Your credentials", {"a": TEXT, "b": TEXT}),
    ("Bitte das Passwort eingeben", {"answer": TEXT}),
    ("Contrase\u00f1a", {"answer": TEXT}),
    ("\u041f\u0430\u0440\u043e\u043b\u044c", {"answer": TEXT}),
    ("x", {"answer": {**TEXT, "title": "pass\u200bword"}}),
    ("x", {"answer": {**TEXT, "title": "p\u0430ssw\u043erd"}}),
    ("x", {"answer": {**TEXT, "title": "p@ssw0rd"}}),
    ("x", {"answer": {**TEXT, "title": "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44"}}),
    ("x", {"answer": {**TEXT, "title": "Card number"}}),
    ("x", {"answer": {**TEXT, "description": "Your PIN"}}),
    ("x", {"answer": {**TEXT, "description": "the twelve words of your seed phrase"}}),
    ("x", {"answer": {**TEXT, "description": "A one-time code"}}),
    ("x", {"answer": {**TEXT, "enum": ["a"], "enumNames": ["your password"]}}),
    ("x", {"answer": {**TEXT, "oneOf": [{"const": "a", "title": "your password"}]}}),
    ("x", {"answer": {**TEXT, "examples": ["my password"]}}),
    ("x", {"answer": {**TEXT, "format": "password"}}),
    *(
        ("x", {name: TEXT})
        for name in (
            *("pw", "pwd", "otp", "pin", "PIN", "cvv", "ssn", "token", "key", "passwd", "passcode"),
            *("pass_word", "pass word", "pass-word", "passWord", "githubPassword", "dbpassword2"),
            *("api_key", "apiKey", "APIKEY", "private_key", "ssh-key", "secret", "client_secret"),
            *(
                "access_token",
                "recoveryCode",
                "backup_codes",
                "seedPhrase",
                "credit_card",
                "creditcard",
            ),
            *("verification_code", "2fa_code", "mfa", "o\u200bt\u200bp", "licence key"),
        )
    ),
]
HARMLESS: list[tuple[str, dict[str, Any]]] = [
    ("Which city?", {"city": TEXT}),
    ("How many tokens may the answer have?", {"max_tokens": {"type": "integer"}}),
    ("x", {"token_count": {"type": "integer"}}),
    ("x", {"answer": {**TEXT, "title": "Token limit"}}),
    ("Should I pin a message?", {"channel": TEXT}),
    ("Which message should I pin?", {"message_id": TEXT}),
    ("x", {"pinned": YES}),
    ("What is the primary key of the table?", {"column": TEXT}),
    ("x", {"sort_key": TEXT}),
    ("x", {"keyboard_layout": TEXT}),
    ("x", {"monkey": TEXT}),
    ("x", {"zip_code": TEXT}),
    ("Which error code did you see?", {"error_code": TEXT}),
    ("Is the code review done?", {"answer": TEXT}),
    ("Who is the secretary?", {"answer": TEXT}),
    ("A compass wording, or one that bypasses words?", {"answer": TEXT}),
    ("x", {"passenger": TEXT, "passport_country": TEXT, "compass": TEXT}),
    ("x", {"author": TEXT, "pattern": TEXT, "tango": TEXT}),
    ("Should I rotate the API key?", {"sure": YES}),
    ("Your password has expired. Go on?", {}),
    ("Delete the token file?", {"choice": {**TEXT, "enum": ["yes", "no"]}}),
    ("The IBAN of whom you pay", {"iban": TEXT}),
]


def reason(message: str, fields: dict[str, Any]) -> str:
    schema = {"type": "object", "properties": fields}
    return refusal_reason(read_form("s", {"message": message, "requestedSchema": schema}))


@pytest.mark.parametrize(("message", "fields"), SECRET, ids=range(len(SECRET)))
def test_a_form_that_asks_for_a_secret_is_refused(message: str, fields: dict[str, Any]) -> None:
    assert "for a secret" in reason(message, fields)


@pytest.mark.parametrize(("message", "fields"), HARMLESS, ids=range(len(HARMLESS)))
def test_a_form_that_only_sounds_like_it_is_shown(message: str, fields: dict[str, Any]) -> None:
    assert reason(message, fields) == ""


def test_the_texts_of_a_field_are_shown_without_what_cannot_be_seen() -> None:
    field = {**TEXT, "title": "ci\u200bty\u202e"}
    schema = {"type": "object", "properties": {"city": field}}
    form = read_form("s", {"message": "x", "requestedSchema": schema})
    assert form.fields["city"]["title"] == "city"


def test_of_a_long_question_the_first_2000_characters_are_shown() -> None:
    assert read_form("s", {"message": "x" * 3_000}).message == "x" * 2_000
