"""Media of results for MCP clients: each as the block that the protocol has for it."""

from __future__ import annotations

from base64 import b64decode

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from mcp_place import NEW, OLD, Place

from ferrule import Audio, Document, Image, tool
from ferrule.connectors.mcp.results import result_value
from ferrule.core.media import Media
from media_samples import PDF, make_png, make_wav


@tool(side_effect="read")
async def scan() -> list[str | Media]:
    """Scan."""
    media = [Image(make_png()), Audio(make_wav()), Document(PDF), Document(b"# Title", name="a.md")]
    return ["found:", *media]


@pytest.mark.parametrize("era", [OLD, NEW])
async def test_media_of_a_tool_are_blocks_that_our_own_client_reads_back(
    place: Place, era: str
) -> None:
    async with place.client(place.server(place.agent(scan)), era) as client:
        result = await client.call_tool("scan", {})
    text, picture, sound, document, note = result.content
    assert text.text.startswith("found:\n[image: image/png, 2x2")
    assert (picture.type, b64decode(picture.data)) == ("image", make_png())
    assert (sound.type, sound.mime_type, b64decode(sound.data)) == (
        "audio",
        "audio/wav",
        make_wav(),
    )
    assert b64decode(document.resource.blob) == PDF
    assert note.resource.text == "# Title"
    sent = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    back = result_value("s", "scan", sent)
    assert [one.data for one in back if isinstance(one, Media)] == [make_png(), make_wav(), PDF]
