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

from typing import NamedTuple

from ferrule.core.lazy_patterns import compile_lazily

from .command_analysis.program_facts import word_set


class SecretFormat(NamedTuple):
    """The format of a kind of secret.

    `name` is its name, and `signs` are lower-case texts of which every match contains one.
    """

    name: str
    signs: tuple[str, ...]
    pattern: str


SECRET_FORMATS: tuple[SecretFormat, ...] = (
    SecretFormat(
        "a private key",
        ("-----begin",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)",
    ),
    SecretFormat("an age key", ("age-secret-key-1",), r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,80}"),
    SecretFormat("an AWS access key", ("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    SecretFormat(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    ),
    SecretFormat(
        "a GitLab token", ("glpat-", "gldt-", "glrt-"), r"\bgl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,64}"
    ),
    SecretFormat("a Slack token", ("xox", "xapp-"), r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    SecretFormat("an API key", ("sk-",), r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}"),
    SecretFormat(
        "a Google API key",
        ("aiza", "ya29."),
        r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,})",
    ),
    SecretFormat("a Stripe key", ("k_live_",), r"\b[rs]k_live_[A-Za-z0-9]{20,}"),
    SecretFormat(
        "a PyPI or npm token",
        ("pypi-ageichlwas", "npm_"),
        r"\b(?:pypi-AgEIcHlwaS[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36})",
    ),
    SecretFormat("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,64}"),
    SecretFormat(
        "a Groq, xAI or Perplexity key",
        ("gsk_", "xai-", "pplx-"),
        r"\b(?:gsk_|xai-|pplx-)[A-Za-z0-9]{32,128}",
    ),
    SecretFormat("a SendGrid key", ("sg.",), r"\bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
    SecretFormat(
        "a DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"\bdo[opr]_v1_[a-f0-9]{64}"
    ),
    SecretFormat(
        "a Shopify token",
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    ),
    SecretFormat("a Databricks token", ("dapi",), r"\bdapi[a-f0-9]{32}"),
    SecretFormat("a Vault token", ("hvs.", "hvb."), r"\bhv[sb]\.[A-Za-z0-9_-]{20,}"),
    SecretFormat("an Atlassian token", ("atatt3",), r"\bATATT3[A-Za-z0-9_=-]{40,}"),
    SecretFormat(
        "a Linear or Notion key", ("lin_api_", "ntn_"), r"\b(?:lin_api_|ntn_)[A-Za-z0-9]{32,64}"
    ),
    SecretFormat("a bot token", (":aa",), r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    SecretFormat("a signed token", ("eyj",), r"\beyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+)*"),
    SecretFormat(
        "a password in an address",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s/:@\[\]]*:(?P<secret>[^\s/@\[\]]+)@",
    ),
    SecretFormat(
        "a token in an address",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://(?P<secret>[^\s/:@\[\]]{20,})@",
    ),
    SecretFormat(
        "a bearer token",
        ("bearer",),
        r"\b[Bb](?:earer|EARER)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    ),
    SecretFormat(
        "a secret in an option",
        ("password", "passwd", "passphrase", "token", "secret", "key"),
        r"--(?:[a-z0-9-]{1,24}-)?(?:password|passwd|passphrase|token|secret|api-?key|access-?key"
        r"|private-?key)[ \t]{1,4}[\"']?(?P<secret>[^\s\"'\[-][^\s\"']{5,})",
    ),
    SecretFormat(
        "a password for curl",
        ("curl",),
        r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"']{1,64}:"
        r"(?P<secret>[^\s\"'\[][^\s\"']{2,})",
    ),
)

SECRET_NAME_PARTS = ("password", "passwd", "passphrase", "passcode")
"""Texts that make a name secret anywhere in it."""

SECRET_NAME_ENDINGS = ("token", "secret", "apikey", "pwd")
"""Endings that make a name secret: `api_token` and `githubtoken`, not `token_count`."""

SECRET_LAST_WORDS = word_set(
    "secrets authorization auth credential credentials cookie accesskey secretkey privatekey "
    "bearer jwt otp"
)
"""Words that make a name secret as its last word."""

SECRET_LAST_PAIRS = word_set("""
    api_key access_key account_key auth_key client_key encryption_key license_key master_key
    private_key secret_key service_key shared_key signing_key connection_string""")
"""Pairs of words that make a name secret as its last two words."""

_CAMEL_CASE = compile_lazily(r"([a-z0-9])([A-Z])")
_BREAKS = compile_lazily(r"[^a-z0-9]+")


def split_words(name: str) -> list[str]:
    """Split a name into lower-case words: `OpenAI-ApiKey` is `open ai api key`."""
    return [word for word in _BREAKS.split(_CAMEL_CASE.sub(r"\1_\2", name).lower()) if word]


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable or field of this name is likely a secret."""
    words = split_words(name)
    if not words:
        return False
    last = words[-1]
    if (
        last in SECRET_LAST_WORDS
        or last.endswith(SECRET_NAME_ENDINGS)
        or "_".join(words[-2:]) in SECRET_LAST_PAIRS
    ):
        return True
    # A text of `SECRET_NAME_PARTS` is one word, so it cannot span two.
    joined = " ".join(words)
    return any(part in joined for part in SECRET_NAME_PARTS)
