"""How well an operation of GitHub's API is found among all: by its summary, and in other words.

    python benchmarks/operations.py [--document FILE]

The document is the one in the npm package `@octokit/openapi` (MIT), which `npm pack` fetches once.
By summary: every 30th operation, asked for by its own summary; it counts where it, or another one
with the same summary, is first. In other words: the requests of this file, which share few words
with the summaries; one counts where its operation is among the first ten.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any, cast

from ferrule.connectors import openapi_tools
from ferrule.storage import paths
from ferrule.tools.definition import Tool
from ferrule.tools.search.index import ToolIndex

PACKAGE = "@octokit/openapi@23.0.2"
MEMBER = "package/generated/api.github.com.json"
STRATEGIES = ("default", "bm25", "hybrid")
STEP = 30
OTHER_WORDS = {
    "file a new bug report in a repository": "issues/create",
    "who liked this repo": "activity/list-stargazers-for-repo",
    "stop a build that is running": "actions/cancel-workflow-run",
    "try the broken jobs of a pipeline once more": "actions/re-run-workflow-failed-jobs",
    "show the open PRs": "pulls/list",
    "combine a PR into its target branch": "pulls/merge",
    "ask somebody to look at a PR": "pulls/request-reviewers",
    "approve a PR": "pulls/create-review",
    "which files does a PR change": "pulls/list-files",
    "make a copy of a repository in my account": "repos/create-fork",
    "erase a repository": "repos/delete",
    "start a repository in a company": "repos/create-in-org",
    "give a colleague access to a repo": "repos/add-collaborator",
    "change a file's content with a commit": "repos/create-or-update-file-contents",
    "download the source as a zip": "repos/download-zipball-archive",
    "show the readme": "repos/get-readme",
    "publish a new version with notes": "repos/create-release",
    "newest release": "repos/get-latest-release",
    "attach a tag to an issue": "issues/add-labels",
    "put someone in charge of an issue": "issues/add-assignees",
    "reply on an issue": "issues/create-comment",
    "stop discussion on an issue": "issues/lock",
    "find code that contains a text": "search/code",
    "look for people by name": "search/users",
    "keep a password for workflows": "actions/create-or-update-repo-secret",
    "kick off a pipeline by hand": "actions/create-workflow-dispatch",
    "logs of a pipeline run": "actions/download-workflow-run-logs",
    "machines that run our jobs": "actions/list-self-hosted-runners-for-repo",
    "who belongs to the company": "orgs/list-members",
    "throw a person out of the company": "orgs/remove-member",
    "invite somebody to the company": "orgs/create-invitation",
    "make a group of people": "teams/create",
    "get notified by a callback when something happens in a repo": "repos/create-webhook",
    "vulnerable dependencies of a repo": "dependabot/list-alerts-for-repo",
    "leaked credentials in a repo": "secret-scanning/list-alerts-for-repo",
    "protect the main branch": "repos/update-branch-protection",
    "share a snippet of code": "gists/create",
    "how many requests have I left": "rate-limit/get",
    "who am I": "users/get-authenticated",
    "follow somebody": "users/follow",
}


def fetch_document() -> Path:
    """Return the document of the npm package, fetched if it is not there yet."""
    folder = paths.cache() / "benchmarks"
    file = folder / "github.json"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    archive = folder / packed.stdout.split()[-1]
    with tarfile.open(archive) as opened:
        member = opened.extractfile(MEMBER)
        assert member is not None
        file.write_bytes(member.read())
    archive.unlink()
    return file


def read_operations(document: dict[str, Any]) -> dict[str, str]:
    """Return the summary of every operation by its id."""
    operations = [
        cast("dict[str, Any]", operation)
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict)
    ]
    return {
        operation["operationId"]: operation.get("summary", "")
        for operation in operations
        if "operationId" in operation
    }


def find_rank(index: ToolIndex, query: str, strategy: str, wanted: set[str]) -> int:
    """Return the place, from 1, of the first wanted tool among ten; 0 if there is none."""
    hits = [hit.name for hit in index.search(query, strategy, 10)]
    return next((place for place, name in enumerate(hits, 1) if name in wanted), 0)


def measure(tools: list[Tool], summaries: dict[str, str], strategy: str) -> tuple[int, int, int]:
    """Return how many were first by summary, and in other words first and among ten."""
    index = ToolIndex(tools)
    names = {tool.full_name for tool in tools}

    def name_of(operation: str) -> str:
        name = f"gh::{operation.replace('/', '_')}"
        assert name in names, f"no tool `{name}`"
        return name

    chosen = [(key, text) for key, text in summaries.items() if text][::STEP][:40]
    by_summary = 0
    for _, summary in chosen:
        same = {name_of(key) for key, text in summaries.items() if text == summary}
        by_summary += find_rank(index, summary, strategy, same) == 1
    places = [
        find_rank(index, request, strategy, {name_of(operation)})
        for request, operation in OTHER_WORDS.items()
    ]
    return by_summary, sum(place == 1 for place in places), sum(place > 0 for place in places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--document", type=Path, help="GitHub's document, instead of the package's")
    file = parser.parse_args().document or fetch_document()
    summaries = read_operations(json.loads(file.read_text(encoding="utf-8")))
    tools = list(openapi_tools(file, namespace="gh"))
    print(f"{len(tools)} operations")
    print("| ranking | by summary: first of 40 | other words: first of 40 | among ten of 40 |")
    print("|---|--:|--:|--:|")
    for strategy in STRATEGIES:
        first, other, among = measure(tools, summaries, strategy)
        print(f"| `{strategy}` | {first} | {other} | {among} |")


if __name__ == "__main__":
    main()
