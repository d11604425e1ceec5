"""What secrets look like: the names of variables and fields, and the formats of the values.

Issuers document the format of their keys so that leaks can be found: a fixed prefix and enough
random characters. The expressions use no look-around and no back-references, so that both engines
that search with them agree, and they never backtrack over a long text, so that a search is linear.
The group `secret`, if there is one, is the part to hide.

What is not found: a secret without a known format under a name that says nothing, one that is
encoded or split, and one that is disguised on purpose. This prevents accidents; it is not a
security boundary.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .commands.program_facts import listed


class Form(NamedTuple):
    """The format of a kind of secret.

    `what` is its name, and `signs` are lower-case texts of which every match contains one.
    """

    what: str
    signs: tuple[str, ...]
    pattern: str


FORMS: tuple[Form, ...] = (
    Form(
        "a private key",
        ("-----begin",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)",
    ),
    Form("an age key", ("age-secret-key-1",), r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,80}"),
    Form("an AWS access key", ("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    Form(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    ),
    Form("a GitLab token", ("glpat-", "gldt-", "glrt-"), r"\bgl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,64}"),
    Form("a Slack token", ("xox", "xapp-"), r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    Form("an API key", ("sk-",), r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}"),
    Form(
        "a Google API key",
        ("aiza", "ya29."),
        r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,})",
    ),
    Form("a Stripe key", ("k_live_",), r"\b[rs]k_live_[A-Za-z0-9]{20,}"),
    Form(
        "a PyPI or npm token",
        ("pypi-ageichlwas", "npm_"),
        r"\b(?:pypi-AgEIcHlwaS[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36})",
    ),
    Form("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,64}"),
    Form(
        "a Groq, xAI or Perplexity key",
        ("gsk_", "xai-", "pplx-"),
        r"\b(?:gsk_|xai-|pplx-)[A-Za-z0-9]{32,128}",
    ),
    Form("a SendGrid key", ("sg.",), r"\bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
    Form("a DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"\bdo[opr]_v1_[a-f0-9]{64}"),
    Form(
        "a Shopify token",
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    ),
    Form("a Databricks token", ("dapi",), r"\bdapi[a-f0-9]{32}"),
    Form("a Vault token", ("hvs.", "hvb."), r"\bhv[sb]\.[A-Za-z0-9_-]{20,}"),
    Form("an Atlassian token", ("atatt3",), r"\bATATT3[A-Za-z0-9_=-]{40,}"),
    Form("a Linear or Notion key", ("lin_api_", "ntn_"), r"\b(?:lin_api_|ntn_)[A-Za-z0-9]{32,64}"),
    Form("a bot token", (":aa",), r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    Form("a signed token", ("eyj",), r"\beyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+)*"),
    Form(
        "a password in an address",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s/:@\[\]]*:(?P<secret>[^\s/@\[\]]+)@",
    ),
    Form(
        "a token in an address",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://(?P<secret>[^\s/:@\[\]]{20,})@",
    ),
    Form(
        "a bearer token",
        ("bearer",),
        r"\b[Bb](?:earer|EARER)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    ),
)

ANYWHERE = ("password", "passwd", "passphrase", "passcode")
"""Texts that make a name secret anywhere in it."""

ENDS = ("token", "secret", "apikey", "pwd")
"""Endings that make a name secret: `api_token` and `githubtoken`, not `token_count`."""

LAST = listed(
    "secrets authorization auth credential credentials cookie accesskey secretkey privatekey "
    "bearer jwt otp"
)
"""Words that make a name secret as its last word."""

PAIRS = listed("""
    api_key access_key account_key auth_key client_key encryption_key license_key master_key
    private_key secret_key service_key shared_key signing_key connection_string""")
"""Pairs of words that make a name secret as its last two words."""

_CAMEL_CASE = re.compile(r"([a-z0-9])([A-Z])")
_BREAKS = re.compile(r"[^a-z0-9]+")


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words: `OpenAI-ApiKey` is `open ai api key`."""
    return [word for word in _BREAKS.split(_CAMEL_CASE.sub(r"\1_\2", name).lower()) if word]


def names_secret(name: str) -> bool:
    """Return whether the value of a variable or field of this name is likely a secret."""
    words = words_of(name)
    if not words:
        return False
    last = words[-1]
    if last in LAST or last.endswith(ENDS) or "_".join(words[-2:]) in PAIRS:
        return True
    # A text of `ANYWHERE` is one word, so it cannot span two.
    joined = " ".join(words)
    return any(part in joined for part in ANYWHERE)
