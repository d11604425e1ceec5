"""Large results as resources: linked, read in parts, and nobody else's."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_place import NEW, OLD, TOKEN, Place, text_of

from ferrule.core.events import DirectCall
from ferrule.runtime.http.http_security import Principal
from ferrule.servers.mcp import McpServer

ERAS = pytest.mark.parametrize("era", [OLD, NEW])
LINES = 40_000
WHOLE = "".join(f"book {at:06}\n" for at in range(LINES))


def serve_with_artifacts(place: Place, **more: object) -> McpServer:
    return place.server(place.agent(artifacts=place.folder / "artifacts", **more))


async def large(client: Client) -> str:
    """Make a large result; the address of the whole."""
    result = await client.call_tool("catalogue", {"lines": LINES})
    (link,) = [part for part in result.content if part.type == "resource_link"]
    assert link.size == len(WHOLE) and link.mime_type == "text/plain"
    assert json.loads(text_of(result).partition("\n")[0])["artifact"] in link.uri
    return link.uri


@ERAS
async def test_a_large_result_is_a_stub_with_a_link_to_what_can_be_read_in_parts(
    place: Place, era: str
) -> None:
    async with place.client(serve_with_artifacts(place), era) as client:
        uri = await large(client)
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "ferrule-artifact:///{reference}{?offset,size}"
        parts, at = list[str](), uri
        while at:
            (part,) = (await client.read_resource(at)).contents
            assert len(part.text) <= 32_768
            parts.append(part.text)
            at = part.meta.get("ferrule/next", "")
        assert "".join(parts) == WHOLE and len(parts) > 10
        (middle,) = (await client.read_resource(f"{uri}?offset=12&size=11")).contents
        assert middle.text == "book 000001"
        (first,) = (await client.read_resource(f"{uri}?size=1")).contents
        assert first.text == WHOLE[0]
        assert [one.uri for one in (await client.list_resources()).resources] == [uri]


async def test_reading_is_a_call_in_the_journal_and_rules_hold_for_it(place: Place) -> None:
    async with place.client(serve_with_artifacts(place), NEW) as client:
        uri = await large(client)
        await client.read_resource(uri)
    assert [event.call.tool for event in place.events(DirectCall)] == [
        "catalogue",
        "artifact_fetch",
    ]
    denying = place.server(
        place.agent(artifacts=place.folder / "artifacts", deny=["artifact_fetch"])
    )
    async with place.client(denying, NEW) as client:
        assert (await client.list_resource_templates()).resource_templates == []
        with pytest.raises(MCPError):
            await client.read_resource(uri)


@pytest.mark.parametrize(
    "address",
    [
        "ferrule-artifact:///art-" + "0" * 64,
        "ferrule-artifact:///../../etc/passwd",
        "ferrule-artifact://other/art-" + "0" * 64,
        "ferrule-artifact:///",
        "ferrule-artifact:///x?offset=-1",
        "ferrule-artifact:///x?offset=1&size=0",
        "ferrule-artifact:///x?size=nan",
        "ferrule-artifact:///x?size=1&user=other",
        "file:///etc/passwd",
    ],
)
async def test_addresses_that_lead_nowhere_are_refused(place: Place, address: str) -> None:
    async with place.client(serve_with_artifacts(place), NEW) as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(address)
    assert raised.value.code == -32602 and raised.value.data == {"uri": address}


@ERAS
async def test_two_clients_do_not_see_each_others_artifacts(place: Place, era: str) -> None:
    server = serve_with_artifacts(place)
    async with (
        place.client(server, era, name="one") as one,
        place.client(server, era, name="two") as two,
    ):
        uri = await large(one)
        assert (await two.list_resources()).resources == []
        with pytest.raises(MCPError):
            await two.read_resource(uri)
        refused = await two.call_tool("artifact_fetch", {"artifact": uri.rpartition("/")[2]})
        assert refused.is_error and json.loads(text_of(refused))["error_type"] == "not_found"
        assert (await one.read_resource(uri)).contents


@ERAS
async def test_over_http_persons_and_connections_are_kept_apart(place: Place, era: str) -> None:
    tokens = {TOKEN: Principal("ann"), f"{TOKEN}-2": Principal("bob", tenant="other")}
    async with (
        place.http(serve_with_artifacts(place), tokens) as url,
        place.over_http(url, era, name="same") as ann,
        place.over_http(url, era, name="same", token=f"{TOKEN}-2") as bob,
    ):
        uri = await large(ann)
        with pytest.raises(MCPError):
            await bob.read_resource(uri)
        assert (await bob.list_resources()).resources == []
        assert [one.uri for one in (await ann.list_resources()).resources] == [uri]
    assert {(record.tenant, record.user) for _, record in place.recorded(DirectCall)} == {
        ("local", "ann"), ("other", "bob")
    }  # fmt: skip


async def test_clients_that_only_claim_a_name_are_listed_no_artifacts(place: Place) -> None:
    async with place.http(serve_with_artifacts(place)) as url:
        async with place.over_http(url, NEW) as client:
            uri = await large(client)
            assert (await client.list_resources()).resources == []
            assert (await client.read_resource(uri)).contents
        async with place.over_http(url, OLD) as one, place.over_http(url, OLD) as two:
            uri = await large(one)
            assert [each.uri for each in (await one.list_resources()).resources] == [uri]
            assert (await two.list_resources()).resources == []
