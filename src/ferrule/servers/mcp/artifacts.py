"""Large results as resources: `ferrule-artifact:///art-…`, read in parts by their owner.

    ferrule-artifact:///art-<hash>?offset=BYTE&size=BYTES

Reading one is a call of `artifact_fetch`, through the same gate and into the same journal, in the
client's own session: what the rules refuse there is refused here, and artifacts of another session
are reported as unknown. A part gives in `_meta` the size of the whole and the address of the next
part (`ferrule/next`).
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.engine.threads import run_blocking
from ferrule.storage.artifacts.store import Artifact, ArtifactMissing, Scope

from .blocks import Block, link
from .sessions import ClientSession

SCHEME = "ferrule-artifact"
READER = "artifact_fetch"
MAX_LISTED = 100
DEFAULT_PART_SIZE = 16_384
TEMPLATE = {
    "uriTemplate": f"{SCHEME}:///{{reference}}{{?offset,size}}",
    "name": "artifact",
    "description": (
        "A large result of this session, by the reference that stands in its place. Read it in "
        "parts."
    ),
}


class UnreadableArtifact(Exception):
    """A resource that cannot be read; `str` says why."""


def can_read(visit: ClientSession) -> bool:
    """Return whether the client's session has artifacts and the tool that reads them."""
    session = visit.session
    reader = session.catalog.get(READER)
    return session.artifacts is not None and reader is not None and session.is_usable(reader)


async def artifact_links(visit: ClientSession, reference: str) -> list[Block]:
    """Return the link to an artifact of this session, or nothing if it is not one."""
    artifacts = visit.session.artifacts
    if not reference or artifacts is None or not can_read(visit):
        return []
    store = artifacts.store
    scope = Scope.from_identity(visit.session.identity)
    try:
        return [_link(await run_blocking(lambda: store.find(scope, reference)))]
    except ArtifactMissing:
        return []


async def list_artifacts(visit: ClientSession) -> list[dict[str, Any]]:
    """Return the client's newest artifacts, as in `resources/list`.

    Nothing is listed unless the client is the only one that can use its key.
    """
    artifacts = visit.session.artifacts
    if not visit.identity.is_exclusive or artifacts is None or not can_read(visit):
        return []
    store = artifacts.store
    scope = Scope.from_identity(visit.session.identity)
    found: list[Artifact] = await run_blocking(lambda: store.list(scope))
    return [
        {key: one for key, one in _link(artifact).items() if key != "type"}
        for artifact in found[:MAX_LISTED]
    ]


async def read_artifact(visit: ClientSession, uri: str) -> dict[str, Any]:
    """Return a part of an artifact, as in `resources/read`. Raises UnreadableArtifact."""
    reference, offset, size = _parse_uri(uri)
    result = await visit.call_tool(
        READER, {"artifact": reference, "offset": offset, "max_bytes": size}
    )
    if not result.success:
        raise UnreadableArtifact(_failure_reason(result))
    part: dict[str, Any] = result.data
    about: dict[str, Any] = {"ferrule/size": part["size_bytes"], "ferrule/offset": part["offset"]}
    if "next_offset" in part:
        about["ferrule/next"] = f"{SCHEME}:///{reference}?offset={part['next_offset']}&size={size}"
    shape = {"uri": uri, "mimeType": part["mime"], "_meta": about}
    if part.get("encoding") == "base64":
        return {
            **shape,
            "blob": base64.b64encode(base64.b64decode(part["content"])).decode("ascii"),
        }
    return {**shape, "text": part["content"]}


def _link(artifact: Artifact) -> Block:
    said = (
        f"The whole result of `{artifact.tool}`. Read it in parts: add `?offset=BYTE&size=BYTES`."
    )
    return link(
        f"{SCHEME}:///{artifact.reference}", artifact.reference, artifact.mime, artifact.size, said
    )


def _parse_uri(uri: str) -> tuple[str, int, int]:
    split = urlsplit(uri)
    given = parse_qs(split.query, keep_blank_values=True)
    try:
        offset, size = (
            int(given.get(name, [str(usual)])[0])
            for name, usual in (("offset", 0), ("size", DEFAULT_PART_SIZE))
        )
    except ValueError:
        raise UnreadableArtifact("offset and size must be whole numbers of bytes") from None
    if split.netloc or given.keys() - {"offset", "size"} or offset < 0 or size < 1:
        raise UnreadableArtifact(
            f"expected an address like `{SCHEME}:///art-…?offset=BYTE&size=BYTES`"
        )
    return split.path.strip("/"), offset, size


def _failure_reason(result: ToolResult) -> str:
    if result.error_type is ErrorType.NOT_FOUND:
        return "resource not found"
    return result.error_message or str(result.error_type)
