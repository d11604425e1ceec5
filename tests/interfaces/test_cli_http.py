"""HTTP tools on the command line: named in settings, brought by a repository, made from an OpenAPI
document.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ferrule.storage.settings.settings import PROJECT_FILE

KENNEL = Path(__file__).parent.parent / "connectors/http/kennel.yaml"


class Answering(BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_GET(self) -> None:
        body = json.dumps(
            {"path": self.path, "token": self.headers.get("authorization", "")}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def served() -> Iterator[str]:
    """`127.0.0.1:port` of a plain server on a thread."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def config(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's settings folder, with a secret in the environment."""
    made = tmp_path / "config"
    (made / "http").mkdir(parents=True)
    monkeypatch.setenv("FERRULE_CONFIG", str(made))
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NOTES_TOKEN", "notes-token-123")
    return made


def manifest(host: str, name: str = "get_note", *, hosts: bool = True) -> str:
    opened = f'hosts: ["{host}"]\n' if hosts else ""
    return (
        f'{opened}auth: {{token: {{kind: bearer, secret: "${{NOTES_TOKEN}}"}}}}\ntools:\n'
        f"  - name: {name}\n    description: One note.\n    method: GET\n"
        f"    url_template: http://{host}/notes/{{{{id}}}}\n    auth_ref: token\n"
    )


def test_a_manifest_of_the_person_is_listed_shown_and_called(
    ferrule: Any, config: Path, served: str
) -> None:
    (config / "http/notes.yaml").write_text(manifest(served))
    listed = {row["name"]: row for row in json.loads(ferrule("tools", "list", "--json").out)}
    assert (
        listed["get_note"]["source"] == "http notes" and listed["get_note"]["side_effect"] == "read"
    )
    assert "http notes" in ferrule("tools", "show", "get_note").out
    asked = ferrule("tools", "call", "get_note", "id=7")
    assert asked.code == 4 and "no one was available" in asked.err
    ran = ferrule("tools", "call", "get_note", "id=7", "--yes-to", "get_note")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {"path": "/notes/7", "token": "Bearer [secret]"}
    assert (
        ferrule("tools", "call", "get_note", "id=7", "--allow", "WebFetch(domain:127.0.0.1)").code
        == 0
    )
    refused = ferrule(
        "tools",
        "call",
        "get_note",
        "id=7",
        "--yes-to",
        "get_note",
        "--deny",
        "WebFetch(domain:127.0.0.1)",
    )
    assert refused.code == 4


def test_a_manifest_that_cannot_be_used_is_left_out_with_its_place_and_takes_no_other_along(
    ferrule: Any, config: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config / "http/notes.yaml").write_text(
        manifest(served).replace("auth_ref: token", "auth_ref: tokem")
    )
    open_one = (
        manifest(served, "get_open").partition("auth:")[0]
        + "tools:"
        + manifest(served, "get_open").partition("tools:")[2].replace("auth_ref: token", "")
    )
    (config / "http/open.yaml").write_text(open_one)
    ran = ferrule("tools", "list")
    assert ran.code == 0
    assert "notes.yaml:8:15: auth_ref `tokem`" in ran.err
    assert "get_open" in ran.out
    (config / "http/notes.yaml").write_text(manifest(served))
    assert "get_note" in ferrule("tools", "list").out
    monkeypatch.delenv("NOTES_TOKEN")
    ran = ferrule("tools", "list")
    assert ran.code == 0
    assert "the variable `NOTES_TOKEN` is not set" in ran.err
    assert "get_open" in ran.out
    assert "get_note" not in ran.out


def test_files_that_settings_name(ferrule: Any, config: Path, served: str, tmp_path: Path) -> None:
    (config / "elsewhere.yaml").write_text(manifest(served))
    (config / "kennel.yaml").write_bytes(KENNEL.read_bytes())
    keys = dict.fromkeys(("bearer", "key", "session"), "${NOTES_TOKEN}")
    settings = {
        "tools": {
            "http_manifests": ["elsewhere.yaml"],
            "openapi": {"dogs": {"file": "kennel.yaml", "auth": keys}},
        }
    }
    (config / "ferrule.yaml").write_text(yaml.safe_dump(settings))
    ran = ferrule("tools", "list", "--json")
    names = {row["name"] for row in json.loads(ran.out)}
    assert {"get_note", "dogs::listDogs"} <= names
    assert "HEAD /stays" in ran.err


def test_a_repositorys_manifest_waits_for_trust_and_for_its_hosts_and_secrets(
    ferrule: Any, config: Path, folder: Path, served: str
) -> None:
    (folder / ".ferrule/http").mkdir(parents=True)
    (folder / ".ferrule/http/notes.yaml").write_text(manifest(served, hosts=False))
    assert "get_note" not in ferrule("tools", "list").out
    ran = ferrule("validate")
    assert (
        ran.code == 1
        and ".ferrule/http/notes.yaml:3:5" in ran.out + ran.err
        and "`tools.http_hosts`" in ran.out
    )
    assert ferrule("trust", "--yes").code == 0
    ran = ferrule("tools", "list")
    assert "may not be used by the files of a repository" in ran.err
    assert "get_note" not in ran.out
    settings = {"tools": {"http_hosts": [served], "http_secrets": ["NOTES_TOKEN"]}}
    (config / "ferrule.yaml").write_text(yaml.safe_dump(settings))
    assert ferrule("validate").code == 0
    ran = ferrule("tools", "call", "get_note", "id=7", "--yes-to", "get_note")
    assert ran.code == 0 and json.loads(ran.out)["path"] == "/notes/7"
    (folder / ".ferrule/http/notes.yaml").write_text(manifest(served, "get_other", hosts=False))
    assert "get_other" not in ferrule("tools", "list").out


@pytest.mark.parametrize(
    "key", ["tools.http_manifests", "tools.http_hosts", "tools.http_secrets", "tools.openapi"]
)
def test_a_repository_cannot_set_them(ferrule: Any, config: Path, folder: Path, key: str) -> None:
    (folder / PROJECT_FILE).parent.mkdir()
    (folder / PROJECT_FILE).write_text(f"tools:\n  {key.partition('.')[2]}: [a]\n")
    ran = ferrule("validate")
    assert ran.code == 1 and f"`{key}` cannot be set by a repository" in ran.out + ran.err


def test_an_openapi_document_becomes_a_manifest_that_can_be_used(
    ferrule: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ferrule(
        "tools", "import", "openapi", str(KENNEL), "--tag", "stays", "--namespace", "hotel"
    )
    assert shown.code == 0 and "secrets to set: `${HOTEL_BEARER}`" in shown.err
    made = yaml.safe_load(shown.out)
    assert [tool["name"] for tool in made["tools"]] == ["stays.between", "book"] and made[
        "namespace"
    ] == "hotel"
    out = config / "http/hotel.yaml"
    words = (
        "tools",
        "import",
        "openapi",
        str(KENNEL),
        "--tag",
        "stays",
        "--namespace",
        "hotel",
        "--out",
        str(out),
    )
    assert (
        ferrule(*words).code == 0
        and ferrule(*words).code == 2
        and ferrule(*words, "--force").code == 0
    )
    assert "`HOTEL_BEARER` is not set" in ferrule("tools", "list").err
    monkeypatch.setenv("HOTEL_BEARER", "hotel-1234")
    assert "hotel::stays.between" in ferrule("tools", "list").out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--server", "http://10.0.0.1/v2"], "10.0.0.1"),
        (["--variable", "region=moon"], "needs one of eu, us"),
        (["--variable", "region"], "write NAME=VALUE"),
        (["--auth", "bearer=sk-literal"], "is written out"),
        (["--tag", "nothing"], "no operation becomes a tool"),
    ],
)
def test_a_document_that_cannot_be_used_as_asked_is_an_error(
    ferrule: Any, config: Path, words: list[str], why: str
) -> None:
    ran = ferrule("tools", "import", "openapi", str(KENNEL), *words)
    assert ran.code == 2 and why in ran.err and not ran.out


def test_a_large_document_becomes_a_file_that_can_still_be_read(
    ferrule: Any, config: Path, folder: Path
) -> None:
    thing = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "x" * 20} for n in range(60)},
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Large"},
        "servers": [{"url": "https://large.example.com"}],
        "paths": {
            f"/things/{n}": {"post": {"requestBody": body, "tags": [f"t{n % 4}"]}}
            for n in range(60)
        },
        "components": {"schemas": {"Thing": thing}},
    }
    (folder / "large.json").write_text(json.dumps(document))
    out = config / "http/large.yaml"
    assert ferrule("tools", "import", "openapi", "large.json", "--out", str(out)).code == 0
    rows = json.loads(ferrule("tools", "list", "--json").out)
    assert sum(row["name"].startswith("large::") for row in rows) == 60
    thing["properties"] = {f"p{n}": {"type": "string", "description": "x" * 290} for n in range(60)}
    (folder / "large.json").write_text(json.dumps(document))
    ran = ferrule("tools", "import", "openapi", "large.json")
    assert ran.code == 2 and "`tools.openapi`" in ran.err
    assert ferrule("tools", "import", "openapi", "large.json", "--tag", "t1").code == 0
