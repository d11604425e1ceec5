"""What secrets look like: names under which they stand, and forms of the values themselves. One
table for all who look for them.

Forms are what issuers document of their keys, so that leaks can be found: a fixed beginning and
enough random characters. The expressions have no look-around and no back-references: both engines
that are used here read them alike. Nothing in them can be tried twice over a long text, so that
searching is linear. A group `secret` is the part to hide where that is not the whole.

What is not found: a secret without a form under a name that says nothing, one that was encoded or
cut in two, and one that somebody spells on purpose so that it is not found. This keeps accidents
out of what people read; it is no wall.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .commands.program_facts import listed


class Form(NamedTuple):
    """`what` it is in words; `signs`, one of which stands in every match (lower case); the
    expression.
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
"""What makes a name secret wherever it stands in it."""

ENDS = ("token", "secret", "apikey", "pwd")
"""What makes a name secret at its end, also without a break before it: `api_token` and
`githubtoken`, not `token_count`.
"""

LAST = listed(
    "secrets authorization auth credential credentials cookie accesskey secretkey privatekey "
    "bearer jwt otp"
)
"""Words that do so as the last one."""

PAIRS = listed("""
    api_key access_key account_key auth_key client_key encryption_key license_key master_key private_key secret_key service_key
    shared_key signing_key connection_string""")
"""Two words that do so at the end."""

_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_BREAKS = re.compile(r"[^a-z0-9]+")


def words_of(name: str) -> list[str]:
    """`OpenAI-ApiKey` is `open ai api key`."""
    return [word for word in _BREAKS.split(_CAMEL.sub(r"\1_\2", name).lower()) if word]


def names_secret(name: str) -> bool:
    """Whether what stands under this name is likely a secret."""
    words = words_of(name)
    if not words:
        return False
    last = words[-1]
    return (
        last.endswith(ENDS)
        or last in LAST
        or "_".join(words[-2:]) in PAIRS
        or any(part in word for word in words for part in ANYWHERE)
    )
