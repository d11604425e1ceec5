"""Redaction: what is taken out, what stays readable, and that it cannot be made slow or undone."""

from __future__ import annotations

import json
import string
from hashlib import sha256

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ferrule import ConfigError
from ferrule.permissions.redaction import Redactor, make_mark
from ferrule.permissions.secret_patterns import SECRET_FORMATS, is_secret_name
from ferrule.tools.safe_patterns import compile_regex

REDACTOR = Redactor()
R = "Ab3dEf6hIj9lMn2pQr5tUv8xYz1bCd4fGh7j"
"""Random enough; 36 letters and digits."""

VALUES = {
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{R}\n-----END OPENSSH PRIVATE KEY-----",
    "an age key": "AGE-SECRET-KEY-1" + R.upper(),
    "an AWS access key": "AKIA" + R[:16].upper(),
    "a GitHub token": f"ghp_{R}",
    "a GitLab token": f"glpat-{R[:20]}",
    "a Slack token": "xoxb-123456789012-" + R[:12],
    "an API key": f"sk-ant-{R}",
    "a Google API key": f"AIza{R[:35]}",
    "a Stripe key": f"sk_live_{R[:24]}",
    "a PyPI or npm token": f"npm_{R}",
    "a Hugging Face token": f"hf_{R[:34]}",
    "a Groq, xAI or Perplexity key": f"gsk_{R}",
    "a SendGrid key": f"SG.{R[:22]}.{R}",
    "a DigitalOcean token": "dop_v1_" + "a1" * 32,
    "a Shopify token": "shpat_" + "a1" * 16,
    "a Databricks token": "dapi" + "a1" * 16,
    "a Vault token": f"hvs.{R}",
    "an Atlassian token": f"ATATT3{R}{R[:8]}",
    "a Linear or Notion key": f"lin_api_{R}",
    "a bot token": f"1234567890:AA{R[:33]}",
    "a signed token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmn",
    "a password in an address": "postgres://ada:s3cr3t-word@db.example.org:5432/x",
    "a token in an address": f"https://{R}@example.org/x.git",
    "a bearer token": f"Bearer {R}",
    "a secret in an option": f"deploy --db-password {R[:12]} now",
    "a password for curl": f"curl -s -u 'bob:{R[:12]}' https://example.org",
}


@pytest.mark.parametrize("form", SECRET_FORMATS, ids=lambda form: form.name)
def test_every_form_is_found_in_text_in_json_and_in_json_within_json(form: object) -> None:
    assert isinstance(form, tuple)
    value = VALUES[form[0]]
    secret = R[:12] if "postgres" not in value else "s3cr3t-word"
    secret = next(
        (part for part in (secret, "a1a1a1", secret.upper(), "eyJzdWIi") if part in value), "?"
    )
    inner = json.dumps({"url": f"see {value} there"})
    for shown in (
        REDACTOR.redact_text(f"see {value} there"),
        REDACTOR.redact_text(f"说{value}。"),
        json.dumps(REDACTOR.redact_value({"deep": [{"x": f"see {value}"}]}), ensure_ascii=False),
        REDACTOR.redact_json(json.dumps({"data": f"see {value} there", "n": 1})),
        REDACTOR.redact_json(json.dumps({"arguments": inner})),
        REDACTOR.redact_json(json.dumps({"arguments": inner[:-2]})),
    ):
        assert secret not in shown, form[0]
        assert "[redacted" in shown


@pytest.mark.parametrize(
    "text",
    [
        "badge no: {}",
        "badge_no={}",
        "--badge-no={}",
        "?badge_no={}&x=1",
        'x {{"badgeNo": "{}"}} y',
        "Badge-No = '{}'",
        "export BADGE_NO={}",
    ],
)
def test_a_persons_own_names_are_found_in_text(text: str) -> None:
    shown = Redactor(keys=["badge-no"]).redact_text(text.format("17abcdefgh99"))
    assert "17abcdefgh99" not in shown and "[redacted" in shown
    assert REDACTOR.redact_text(text.format("17abcdefgh99")) == text.format("17abcdefgh99")


def test_a_persons_own_name_is_a_whole_one() -> None:
    text = "notbadge_no=17abcdefgh99 badge_nos=17abcdefgh99"
    assert Redactor(keys=["badge-no"]).redact_text(text) == text


@pytest.mark.parametrize("form", SECRET_FORMATS, ids=lambda form: form.name)
def test_every_form_is_read_by_both_engines_and_holds_one_of_its_signs(form: object) -> None:
    assert isinstance(form, tuple)
    what, signs, pattern = form
    assert compile_regex(pattern)(VALUES[what])
    assert any(sign in VALUES[what].lower() for sign in signs)


def test_what_stands_under_a_secret_name_is_taken_out_whatever_it_looks_like() -> None:
    names = (
        "password api_key apiKey API-KEY dbPassword user_passwd token access_token githubtoken "
        "Authorization cookie"
    )
    names += (
        " client_secret AWS_SECRET_ACCESS_KEY private_key credentials X-Auth-Token passwordHash "
        "connection_string"
    )
    for name in names.split():
        assert is_secret_name(name), name
        for value in ("correct horse", 123456, ["a", "b"], {"user": "ada"}):
            shown = REDACTOR.redact_value({name: value, "other": "stays"})
            assert str(shown[name]).startswith("[redacted")
            assert shown["other"] == "stays"
        assert "correct" not in REDACTOR.redact_text(json.dumps({name: "correct horse"}))


def test_what_is_no_secret_stays_as_it_is() -> None:
    plain = {
        "max_tokens": 4096,
        "tokens": 12,
        "token_count": 3,
        "usage": {"input_tokens": 3},
        "key": "ArrowUp",
        "author": "ada",
        "primary_key": "id",
        "password": None,
        "token": "",
        "secret": False,
        "path": "src/auth/tokens.py",
        "keys": ["a"],
        "text": (
            "the token limit is 5; tokens: 12; see https://example.org:8080/a?b=c and "
            "mailto:ada@example.org"
        ),
        "code": (
            "token = get_token()\nkey = keys[0]\npassword = ask(prompt)\nfor token in tokens:\n  "
            "  print(token)"
        ),
        "hash": "sha256:" + "ab" * 32,
        "id": "call_1_0",
        "task": "task-force-of-twenty-four-people",
    }
    assert REDACTOR.redact_value(plain) == plain
    body = json.dumps(plain)
    assert REDACTOR.redact_json(body) is body


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PASSWORD=hunter2hunter2 make", "PASSWORD=[redacted sha256:76880d60] make"),
        ("api-key: abcdef", "api-key: [redacted]"),
        ("api key = 'a b c d e f'", "api key = '[redacted]'"),
        ('"token" : "abc",', '"token" : "[redacted]",'),
        ('{\\"password\\": \\"two words\\"}', '{\\"password\\": \\"[redacted]\\"}'),
        ("secret => abcdef", "secret => [redacted]"),
        ('password="not closed', 'password="[redacted]'),
        ("Authorization: Basic YWRhOng=", "Authorization: Basic [redacted]"),
        ("?api_key=abcdef&x=1", "?api_key=[redacted]&x=1"),
    ],
)
def test_what_is_assigned_to_a_secret_name_in_text_is_taken_out(text: str, shown: str) -> None:
    assert REDACTOR.redact_text(text) == shown


def test_equal_secrets_have_equal_marks_and_short_ones_have_no_digest() -> None:
    assert make_mark("a" * 12) == f"[redacted sha256:{sha256(b'a' * 12).hexdigest()[:8]}]"
    assert make_mark("a" * 11) == "[redacted]"
    assert REDACTOR.redact_value({"token": R}) == {"token": make_mark(R)}


def test_a_persons_own_names_and_patterns_hold_and_broken_ones_are_refused() -> None:
    own = Redactor(["X-Employee"], [r"EMP-\d{6}", r"case \d+ of \d+"])
    assert own.redact_value({"x_employee": "ada", "xEmployee": 5}) == {
        "x_employee": "[redacted]",
        "xEmployee": "[redacted]",
    }
    assert own.redact_text("see EMP-123456, now") == "see [redacted], now".replace(
        "[redacted],", make_mark("EMP-123456,")
    )
    assert (
        own.redact_text("one\ncase 12 of 30 is here\ntwo")
        == f"one\n{make_mark('case 12 of 30 is here')}\ntwo"
    )
    # A line that still matches without its words that do, or around a mark, goes as a whole.
    both = "EMP-123456 has case 12 of 30"
    assert own.redact_text(both) == make_mark(both)
    around = "case [redacted] of 30"
    assert Redactor((), [r"case \S+ of \d+"]).redact_text(around) == make_mark(around)
    for wrong in ("(", "a*", "x" * 5000):
        with pytest.raises(ConfigError, match="redaction pattern"):
            Redactor((), [wrong])


def test_the_values_of_this_processes_secret_variables_are_taken_out_wherever_they_stand() -> None:
    known = Redactor.for_environment(
        {
            "OPENAI_API_KEY": "no form at all 1",
            "PATH": "/usr/bin",
            "MY_TOKEN": 'quo"ted\\value',
            "PW": "x",
        }
    )
    assert known.needs_whole_lines
    shown = known.redact_json(
        json.dumps(
            {
                "a": "it is no form at all 1.",
                "b": json.dumps({"c": 'quo"ted\\value'}),
                "p": "/usr/bin",
            }
        )
    )
    assert "no form" not in shown
    assert "quo" not in shown
    assert "/usr/bin" in shown


TEXT = st.text(
    alphabet=string.ascii_letters + string.digits + " \n\"'\\=:{}[],./-_é漢", max_size=60
)
SAMPLES = st.lists(
    st.one_of(
        TEXT, st.sampled_from([*VALUES.values(), "password=", '"token":"', "api_key: ", "\\u0041"])
    ),
    max_size=6,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | SAMPLES.map("".join),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "password", "token", "b c"]) | TEXT, inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(SAMPLES.map("".join))
def test_redacting_a_text_twice_is_redacting_it_once(text: str) -> None:
    once = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(once) == once


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_redacting_a_value_twice_is_redacting_it_once_and_its_text_says_the_same(
    value: object,
) -> None:
    before = json.dumps(value)
    once = REDACTOR.redact_value(value)
    assert json.dumps(value) == before
    assert REDACTOR.redact_value(once) == once
    assert json.loads(REDACTOR.redact_json(json.dumps(value, ensure_ascii=False))) == once


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT, st.sampled_from([f"ghp_{R}", f"sk-{R}", f"glpat-{R[:20]}"]))
def test_a_key_is_found_whatever_stands_around_it(before: str, after: str, key: str) -> None:
    assume(not before[-1:].isascii() or not (before[-1:].isalnum() or before.endswith("_")))
    assert key[:16] not in REDACTOR.redact_text(f"{before}{key} {after}")


@pytest.mark.parametrize(
    "unit",
    [
        "token=",
        'password="',
        'password=\\"',
        "sk-",
        "eyJ",
        "://",
        "a://b:c",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "SG.",
        "{",
        "[",
        "token=a(",
        "-eyJ",
        "a://",
        "://@",
    ],
)
def test_no_text_makes_it_slow(unit: str) -> None:
    # No clock: the work is counted in how often an expression is tried, by a size that quadratic
    # work would not survive.
    text = unit * (200_000 // len(unit))
    assert REDACTOR.redact_text(REDACTOR.redact_text(text)) == REDACTOR.redact_text(text)
