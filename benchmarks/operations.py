"""How well an operation of an API is found among all: by its summary, and in other words.

    python benchmarks/operations.py [NAME ...]

The documents of GitHub, Stripe, Kubernetes, Slack, DigitalOcean and Jira are in npm packages, which
`npm pack` fetches once.
By summary: 40 operations, spread evenly, each asked for by its own summary, or its description
where it has none; it counts where it, or another one with the same words, is first. In other words:
the requests of `operations.yaml`, which share few words with the summaries; one counts where its
operation is first, or among the first ten.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any, cast

import yaml

from ferrule.connectors import openapi_tools
from ferrule.connectors.http import Secrets
from ferrule.storage import paths
from ferrule.tools.definition import Tool
from ferrule.tools.search.index import ToolIndex

STRATEGIES = ("default", "bm25", "hybrid")
ASKED = 40
SCHEMES = ("BASICAUTH", "BEARERAUTH", "BEARERTOKEN", "SLACKAUTH", "BEARER_AUTH", "OAUTH2")
NO_SECRETS = Secrets({f"API_{name}": "never sent" for name in SCHEMES})
REQUESTS = Path(__file__).with_name("operations.yaml")


def fetch_document(name: str, package: str, member: str) -> Path:
    """Return the document of an npm package, fetched if it is not there yet."""
    folder = paths.cache() / "benchmarks"
    file = folder / f"{name.lower()}.json"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    archive = folder / packed.stdout.split()[-1]
    with tarfile.open(archive) as opened:
        found = opened.extractfile(member)
        assert found is not None
        data = found.read()
    file.write_bytes(gzip.decompress(data) if member.endswith(".gz") else data)
    archive.unlink()
    return file


def read_operations(document: dict[str, Any]) -> dict[str, str]:
    """Return the summary of every operation by its id; its description if it has none."""
    operations = [
        cast("dict[str, Any]", operation)
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict)
    ]
    return {
        operation["operationId"]: operation.get("summary") or operation.get("description", "")
        for operation in operations
        if "operationId" in operation
    }


def find_rank(index: ToolIndex, query: str, strategy: str, wanted: set[str]) -> int:
    """Return the place, from 1, of the first wanted tool among ten; 0 if there is none."""
    hits = [hit.name for hit in index.search(query, strategy, 10)]
    return next((place for place, name in enumerate(hits, 1) if name in wanted), 0)


def measure(
    tools: list[Tool], summaries: dict[str, str], requests: dict[str, str], strategy: str
) -> tuple[int, int, int]:
    """Return how many were first by summary, and in other words first and among ten."""
    index = ToolIndex(tools)
    names = {tool.full_name for tool in tools}

    def name_of(operation: str) -> str:
        return f"api::{operation.replace('/', '_')}"

    asked = [(key, text) for key, text in summaries.items() if text and name_of(key) in names]
    chosen = asked[:: len(asked) // ASKED][:ASKED]
    by_summary = 0
    for _, summary in chosen:
        same = {name_of(key) for key, text in asked if text == summary}
        by_summary += find_rank(index, summary, strategy, same) == 1
    missing = [one for one in requests.values() if name_of(one) not in names]
    assert not missing, f"no tools for {missing}"
    places = [
        find_rank(index, request, strategy, {name_of(operation)})
        for request, operation in requests.items()
    ]
    return by_summary, sum(place == 1 for place in places), sum(place > 0 for place in places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which of the documents; all by default")
    chosen = parser.parse_args().names
    print("| document | operations | ranking | by summary: first | other words: first | in ten |")
    print("|---|--:|---|--:|--:|--:|")
    for name, entry in yaml.safe_load(REQUESTS.read_text(encoding="utf-8")).items():
        if chosen and name not in chosen:
            continue
        file = fetch_document(name, entry["package"], entry["member"])
        summaries = read_operations(json.loads(file.read_text(encoding="utf-8")))
        server = entry.get("server", "")
        tools = list(openapi_tools(file, secrets=NO_SECRETS, namespace="api", server=server))
        for strategy in STRATEGIES:
            counts = measure(tools, summaries, entry["requests"], strategy)
            figures = " | ".join(f"{count} of {ASKED}" for count in counts)
            print(f"| {name} | {len(tools)} | `{strategy}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
