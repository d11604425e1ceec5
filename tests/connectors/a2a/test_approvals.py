"""What a person approved of an agent holds; what changed since waits for them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from a2a_world import World, card_of, parse_agent_card, skill

from ferrule.connectors.a2a import A2aPeer, PeerApprovals, connect
from ferrule.connectors.a2a import peer_client as peer
from ferrule.connectors.a2a.peers import fetch_peer_card as read
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError


def mine(world: World, **more: Any) -> A2aPeer:
    """The agent, as a person's settings name it."""
    return world.peer(origin="person", **more)


async def approved(world: World, **more: Any) -> A2aPeer:
    one = mine(world, **more)
    world.approvals.approve(one, await read(one))
    return one


async def test_an_agent_of_the_settings_does_nothing_until_it_was_approved(world: World) -> None:
    peers = await world.peers(mine(world))
    assert peers.tools == () and world.requests == []
    assert peers.notices == (
        "peer `friend` is not used: nobody approved it; `ferrule a2a approve friend` shows it",
    )
    one = await approved(world)
    world.requests.clear()
    peers = await world.peers(one)
    assert [tool.name for tool in peers.tools] == ["friend__echo"] and world.requests == []


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"card_path": "/else.json"}, '/else.json",'),
        ({"endpoint": "https://else.example"}, '+ "endpoint": "https://else.example",'),
        ({"identity": True}, '+ "identity": true,'),
        ({"keys": "/k"}, '+ "keys": "/k",'),
    ],
)
async def test_another_way_to_reach_it_asks_again_and_is_shown(
    world: World, more: dict[str, Any], shown: str
) -> None:
    card = world.approvals.get(await approved(world)).card
    other = mine(world, **more)
    peers = await world.peers(other)
    assert peers.tools == () and "not configured as you approved it" in peers.notices[0]
    assert card is not None and f"{shown}\n" in world.approvals.diff(other, card)


async def test_what_a_person_chooses_or_bounds_asks_nothing(world: World) -> None:
    await approved(world)
    peers = await world.peers(mine(world, timeout=5, trust="low", without=("other",)))
    assert len(peers.tools) == 1 and peers.notices == ()


async def test_a_card_that_changed_after_approval_is_not_used_and_the_change_is_shown(
    world: World,
) -> None:
    one = await approved(world)
    session = world.session(await world.peers(one))
    world.card["skills"][0]["description"] = "Also reads your mail."
    result = await session.call("friend__echo", message="go")
    assert result.error_type is ErrorType.PERMISSION_DENIED and world.jobs == []
    assert "changed since it was approved" in str(result.error_message)
    assert "ferrule a2a approve friend" in str(result.error_message)
    seen = world.approvals.get(one)
    assert seen.state == "changed" and seen.pending is not None
    changed = [
        line for line in world.approvals.diff(one, seen.pending).splitlines() if line[:1] in "+-"
    ]
    assert changed[2:] == [
        '-   "description": "Does echo.",',
        '+   "description": "Also reads your mail.",',
    ]
    again = await world.peers(one)
    assert again.tools == () and "held back: `echo`" in again.notices[0]


async def test_what_did_not_change_stays_and_what_is_new_waits(world: World) -> None:
    world.card = card_of(f"{world.url}/rpc", skill("a"), skill("b"), skill("c"))
    one = await approved(world)
    world.card = card_of(f"{world.url}/rpc", skill("a"), skill("b", tags=["other"]), skill("new"))
    session = world.session(await world.peers(one))
    results = [await session.call(f"friend__{name}", message="go") for name in "abc"]
    assert [str(result.error_type) for result in results] == [
        "none",
        "permission_denied",
        "not_found",
    ]
    assert [tool.name for tool in (await world.peers(one)).tools] == ["friend__a"]
    world.card = card_of(f"{world.url}/rpc", skill("a"), skill("b"), skill("c"))
    fresh = world.session(await world.peers(one))
    assert (await fresh.call("friend__a", message="go")).success
    assert world.approvals.get(one).state == "approved"


@pytest.mark.parametrize("key", ["name", "version", "securityRequirements", "supportedInterfaces"])
async def test_another_head_holds_back_everything(world: World, key: str) -> None:
    one = await approved(world)
    session = world.session(await world.peers(one))
    interface = {
        "url": f"{world.url}/rest",
        "protocolBinding": "HTTP+JSON",
        "protocolVersion": "1.0",
    }
    schemes = [{"schemes": {"password": {"list": []}}}]
    world.card[key] = {"supportedInterfaces": [interface], "securityRequirements": schemes}.get(
        key, "9.9"
    )
    result = await session.call("friend__echo", message="go")
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert "what the agent says of itself changed" in str(result.error_message)
    assert (await world.peers(one)).tools == ()


async def test_a_program_pins_what_it_saw_first(world: World) -> None:
    await world.peers()
    world.card["skills"][0]["name"] = "Other"
    world.requests.clear()
    session = world.session(await world.peers())
    assert world.requests == []
    assert (
        await session.call("friend__echo", message="go")
    ).error_type is ErrorType.PERMISSION_DENIED


async def test_a_card_is_read_when_it_is_needed_and_again_after_ten_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert peer.CARD_LIFETIME == 600
    one = await approved(world)
    session = world.session(await world.peers(one))
    world.requests.clear()
    for _ in range(2):
        assert (await session.call("friend__echo", message="go")).success
    assert [verb for verb, *_ in world.requests] == ["GET", "POST", "POST"]
    monkeypatch.setattr(peer, "CARD_LIFETIME", -1)
    assert (await session.call("friend__echo", message="go")).success
    assert [verb for verb, *_ in world.requests][3:] == ["GET", "POST"]


async def test_an_approval_that_others_can_write_or_that_is_damaged_is_none(world: World) -> None:
    one = await approved(world)
    file = world.state / "a2a/friend.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write it"):
        world.approvals.get(one)
    file.chmod(0o600)
    for damaged in ("", "[]", '{"version": 1}', '{"version": 2, "digest": ""}'):
        file.write_text(damaged)
        with pytest.raises(ConfigError, match=r"damaged|newer"):
            world.approvals.get(one)
    kept = {"version": 1, "digest": one.digest(), "offer": {"skills": [{}]}}
    file.write_text(json.dumps(kept))
    with pytest.raises(ConfigError, match="damaged"):
        world.approvals.get(one)
    file.unlink()
    os.symlink("/etc/hostname", file)
    with pytest.raises(ConfigError):
        world.approvals.get(one)


# ---- signatures


class Signer:
    """A key of the agent's owner, and the file of public keys that a person has."""

    def __init__(self, folder: Path, kid: str = "k1") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from jwt.algorithms import ECAlgorithm

        self.kid = kid
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        self.file = folder / f"{kid}.jwks"
        self.file.write_text(json.dumps({"keys": [{**public, "kid": kid, "alg": "ES256"}]}))

    def sign(
        self, card: dict[str, Any], algorithm: str = "ES256", key: Any = None
    ) -> dict[str, Any]:
        from a2a.utils.signing import create_agent_card_signer
        from google.protobuf.json_format import MessageToDict

        header: Any = {
            "kid": self.kid,
            "alg": algorithm,
            "jku": "https://evil.example/keys",
            "typ": "JOSE",
        }
        sign = create_agent_card_signer(key or self._key, header)
        return MessageToDict(sign(parse_agent_card(json.loads(json.dumps(card)))))


async def test_with_keys_only_a_card_that_one_of_them_signed_is_taken(
    world: World, tmp_path: Path
) -> None:
    owner, stranger = Signer(tmp_path), Signer(tmp_path / "..", "k2")
    unsigned = world.card
    keyed = world.peer(keys=str(owner.file))
    for wrong in (unsigned, stranger.sign(unsigned)):
        world.card = wrong
        peers = await world.peers(keyed)
        assert peers.tools == () and "is not accepted" in peers.notices[0]
    world.card = {**owner.sign(unsigned), "description": "Changed after it was signed."}
    assert (await world.peers(keyed)).tools == ()
    world.card = owner.sign(unsigned)
    assert (await world.call(keyed)).success


async def test_a_secret_that_both_sides_could_know_signs_nothing(
    world: World, tmp_path: Path
) -> None:
    owner = Signer(tmp_path)
    shared = tmp_path / "shared.jwks"
    secret = b"a secret of thirty-two bytes now"
    key = {
        "kty": "oct",
        "k": "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyBub3c",
        "kid": "k1",
        "alg": "HS256",
    }
    shared.write_text(json.dumps({"keys": [key]}))
    world.card = owner.sign(world.card, "HS256", secret)
    peers = await world.peers(world.peer(keys=str(shared)))
    assert peers.tools == () and "No valid signature" in peers.notices[0]


async def test_a_card_that_is_signed_again_is_the_same_card(world: World, tmp_path: Path) -> None:
    owner, plain = Signer(tmp_path), world.card
    keyed = world.peer(keys=str(owner.file))
    world.card = owner.sign(plain)
    session = world.session(await world.peers(keyed))
    world.card = owner.sign(plain)
    assert (await session.call("friend__echo", message="go")).success


@pytest.mark.parametrize(
    "content", [None, "", "{}", '{"keys": []}', '{"keys": [{"kty": "none"}]}', "[" * 9999]
)
async def test_keys_that_cannot_be_read_are_no_keys(
    world: World, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    peers = await world.peers(world.peer(keys=str(file)))
    assert peers.tools == () and str(file) in peers.notices[0]


async def test_a_card_of_the_older_protocol_is_read_and_its_agent_asked(world: World) -> None:
    older = {
        "name": "Older",
        "description": "Speaks as one did.",
        "url": f"{world.url}/rpc",
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "version": "1",
        "capabilities": {},
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "skills": [skill()],
    }
    world.card = older
    peers = await world.peers()
    assert [tool.name for tool in peers.tools] == ["friend__echo"]

    async def rpc(request: Any) -> Any:
        from a2a_world import JSONResponse

        body = await request.json()
        assert body["method"] == "message/send"
        message = {
            "kind": "message",
            "messageId": "m",
            "role": "agent",
            "parts": [{"kind": "text", "text": "as before"}],
        }
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": message})

    world.instead["/rpc"] = rpc
    result = await world.session(peers).call("friend__echo", message="go")
    assert result.data == {"agent": "friend", "answer": "as before"}


def test_two_agents_of_one_name_are_one(tmp_path: Path) -> None:
    pair = [A2aPeer("a", url=f"https://{host}.example") for host in ("one", "two")]
    assert "not used twice" in connect(pair, approvals=PeerApprovals(tmp_path)).notices[0]
