"""`ferrule serve a2a` as a process of its own, asked by our client and by the protocol
library's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

try:
    import a2a.utils.signing  # noqa: F401  signed cards
    import httpx
    from a2a.client import ClientConfig, create_client
    from a2a.server.agent_execution import AgentExecutor as _  # noqa: F401  the extra is there
    from a2a.types import Message, Part, Role, SendMessageRequest
except ImportError as error:
    pytest.skip(f"the extra `a2a` is not installed here: {error}", allow_module_level=True)

from ferrule.connectors.a2a import A2aPeer, Auth, PeerApprovals, connect
from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.servers.a2a.command import parse_skills
from ferrule.servers.a2a.signed_card import public_keys
from ferrule.storage.audit.signing import Signer
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import default_journal

FERRULE = str(Path(sys.executable).with_name("ferrule"))


@dataclass
class Served:
    """The process, where it is, and what it said of keys and token."""

    process: asyncio.subprocess.Process
    url: str = ""
    token: str = ""
    keys: str = ""


@asynccontextmanager
async def serving(folder: Path, environment: dict[str, str], *words: str) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        FERRULE, "serve", "a2a", "--port", "0", *words,
        cwd=folder, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    served = Served(process)
    said: list[str] = []
    try:
        async with asyncio.timeout(60):
            while not served.token:
                line = (await process.stderr.readline()).decode()
                assert line, "".join(said)
                said.append(line)
                head, _, rest = line.strip().partition(" ")
                if head == "serving":
                    served.url = rest.split()[-1]
                elif head == "keys:":
                    served.keys = rest
                elif head == "token:":
                    served.token = rest
        yield served
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


@asynccontextmanager
async def open_client_session(served: Served, folder: Path, **more: Any) -> AsyncIterator[Any]:
    """A session of an agent of ours whose tool asks the one that is served."""
    peer = A2aPeer("other", url=served.url, plain_http=True, auth=Auth("OTHER_TOKEN"), **more)
    async with connect([peer], approvals=PeerApprovals(folder / "a2a")) as peers:
        assert peers.notices == ()
        agent = Agent(
            "scripted:x",
            peers.tools,
            permissions=Permissions(approver=AllowlistApprover(["*"])),
            storage=Storage(journal=folder / "asking.db"),
        )
        session = agent.session()
        try:
            yield session
        finally:
            await session.close()


async def test_our_own_client_asks_is_asked_back_and_is_answered(
    folder: Path,
    tmp_path: Path,
    environment: dict[str, str],
    script: Callable[..., str],
    a_call: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A server that is stopped before its script has ended has not failed.
    left = {"say": "nobody asks for this"}
    model = script(a_call("write_file", path="a.txt", content="x"), {"say": "It is written."}, left)
    async with serving(
        folder, environment, "-m", model, "--name", "Scribe", "--skill", "write: Writes."
    ) as served:
        monkeypatch.setenv("OTHER_TOKEN", served.token)
        async with open_client_session(served, tmp_path) as session:
            assert [tool.full_name for tool in session.driver.dispatcher.catalog] == [
                "other__write"
            ]
            first = await session.call("other__write", message="Write it")
            assert (
                first.data["state"] == "input-required"
                and "Allow `write_file` to run?" in first.data["wants"]
            )
            assert not (folder / "a.txt").exists()
            second = await session.call(
                "other__write", message="yes", task_id=first.data["task_id"]
            )
        assert second.data == {"agent": "other", "answer": "It is written."}
        assert (folder / "a.txt").read_text() == "x"
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            _, said = await served.process.communicate()
        assert served.process.returncode == 143
        assert b"1 of 3 steps were not used" in said
    with SqliteJournal(default_journal()) as store:
        (info,) = store.sessions()
        store.verify(info.session)
        (answered,) = [
            one.event for one in store.records(info.session) if one.event.kind == "person.answered"
        ]
    assert (answered.choice, answered.by) == ("once", "a2a")


async def test_the_protocol_librarys_client_reads_what_the_card_lists_and_gets_the_answer(
    folder: Path, environment: dict[str, str], script: Callable[..., str]
) -> None:
    skill = folder / ".agents" / "skills" / "brewing"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: brewing\ndescription: How tea is made.\n---\nBoil water.\n"
    )
    model = script({"say": "On the third shelf."})
    words = ("-m", model, "--skill", "find: Finds: books.", "--list-skills")
    async with serving(folder, environment, *words) as served:
        headers = {"authorization": f"Bearer {served.token}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
            client = await create_client(
                served.url, ClientConfig(httpx_client=http, streaming=False)
            )
            message = Message(
                message_id="m1", role=Role.ROLE_USER, parts=[Part(text="Where is it?")]
            )
            found = [one async for one in client.send_message(SendMessageRequest(message=message))]
            card = (await http.get(f"{served.url}/.well-known/agent-card.json")).json()
    assert found[-1].task.artifacts[0].parts[0].text == "On the third shelf."
    assert (
        card["name"] == "Ferrule" and card["supportedInterfaces"][0]["url"] == f"{served.url}/a2a"
    )
    listed = [(one["id"], one["description"]) for one in card["skills"]]
    assert listed == [("find", "Finds: books."), ("brewing", "How tea is made.")]


async def test_a_signed_card_is_taken_by_peers_that_know_the_key_and_no_other(
    folder: Path, tmp_path: Path, environment: dict[str, str], script: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    key, other = tmp_path / "mine.pem", tmp_path / "other.pem"
    Signer.create(key)
    Signer.create(other)
    async with serving(
        folder, environment, "-m", script({"say": "I am."}), "--sign-key", str(key)
    ) as served:
        monkeypatch.setenv("OTHER_TOKEN", served.token)
        assert json.loads(served.keys) == public_keys(key)
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            card = (await http.get(f"{served.url}/.well-known/agent-card.json")).json()
        (signature,) = card["signatures"]
        header = json.loads(urlsafe_b64decode(signature["protected"] + "=="))
        assert header == {"alg": "EdDSA", "typ": "JOSE", "kid": Signer.load(key).name}
        known, wrong = tmp_path / "known.json", tmp_path / "wrong.json"
        known.write_text(served.keys)
        wrong.write_text(json.dumps(public_keys(other)))
        async with open_client_session(served, tmp_path, keys=str(known)) as session:
            result = await session.call("other__ask", message="Who are you?")
            assert result.data["answer"] == "I am."
        peer = A2aPeer("stranger", url=served.url, plain_http=True, keys=str(wrong))
        async with connect([peer], approvals=PeerApprovals(tmp_path / "b")) as peers:
            assert "sign" in str(peers.notices) and peers.tools == ()


@pytest.mark.parametrize("words", [["find"], ["find:"], [": Finds."], ["find: a", "find: b"]])
def test_a_skill_that_cannot_be_read_is_refused_by_its_words(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--skill `"):
        parse_skills(words, [])


def test_what_cannot_be_served_is_said_before_anything_is_served(
    ferrule: Any, folder: Path
) -> None:
    ran = ferrule("serve", "a2a", "--port", "0", "--host", "0.0.0.0", "-m", "local:smollm2")
    assert ran.code == 2 and "in the clear" in ran.err
    ran = ferrule("serve", "a2a", "--port", "0", "--sign-key", "nothing.pem", "-m", "local:smollm2")
    assert ran.code == 2 and "nothing.pem" in ran.err and "serving" not in ran.err
