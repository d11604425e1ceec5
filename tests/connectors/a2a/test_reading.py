"""Peers out of settings: read strictly, secrets only by name."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.connectors.a2a import A2aPeer, Auth, load_peers
from ferrule.connectors.a2a.spec import secret_headers
from ferrule.core.errors import ConfigError

URL = "https://friend.example"


def problem(entry: Any) -> str:
    loaded = load_peers({"friend": entry})
    assert loaded.peers == () and len(loaded.problems) == 1
    return loaded.problems[0]


def test_every_key_of_an_entry_means_something() -> None:
    entry = {
        "url": f"{URL}/agent",
        "card_path": "/card.json",
        "endpoint": "https://api.friend.example",
        "auth": {"kind": "api_key", "header": "X-Key", "value": "${FRIEND}"},
        "keys": "/keys.jwks",
        "skills": ["a", "b"],
        "without": ["b"],
        "trust": "high",
        "timeout": 5,
        "policy": {"max_attempts": 2},
        "tool_policies": {"a": {"timeout_ms": 100}},
        "loading": "deferred",
        "identity": True,
    }
    loaded = load_peers(
        [{"name": "friend", **entry}, {"name": "off", "url": URL, "disabled": True}]
    )
    (peer,) = loaded.peers
    assert loaded.problems == ()
    assert peer.card_url == f"{URL}/agent/card.json"
    assert peer.auth == Auth("FRIEND", "X-Key", "")
    assert (peer.only, peer.without, peer.trust, peer.timeout) == (("a", "b"), ("b",), "high", 5.0)
    assert (peer.policies.policy_for("a").timeout, peer.policies.policy_for("b").max_attempts) == (
        0.1,
        2,
    )
    assert (peer.deferred, peer.identity, peer.origin, peer.keys) == (
        True,
        True,
        "person",
        "/keys.jwks",
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("text", "must hold"),
        ({"url": URL, "nmae": 1}, "unknown key `nmae`"),
        ({}, "is not a valid URL"),
        ({"url": 7}, "must be a text"),
        ({"url": "ftp://friend.example"}, "is not a valid URL"),
        ({"url": "https://me:secret@friend.example"}, "is not a valid URL"),
        ({"url": "https://friend.example/?key=1"}, "is not a valid URL"),
        ({"url": "https://friend.example:99999"}, "cannot be read"),
        ({"url": URL, "card_path": "/../x"}, "cannot be the path"),
        ({"url": URL, "card_path": "https://evil.example"}, "cannot be the path"),
        ({"url": URL, "trust": "person"}, "use one of low, medium, high"),
        ({"url": URL, "timeout": 0}, "more than 0"),
        ({"url": URL, "timeout": True}, "number of seconds"),
        ({"url": URL, "skills": "echo"}, "a list of texts"),
        ({"url": URL, "loading": "later"}, "`always` or `deferred`"),
        ({"url": URL, "policy": {"tries": 1}}, "unknown key `tries`"),
        ({"url": URL, "policy": {"retry_on": ["luck"]}}, "`luck`"),
        ({"url": URL, "auth": "token"}, "must hold `kind`"),
        ({"url": URL, "auth": {"kind": "bearer", "value": "hunter2"}}, "must name a variable"),
        ({"url": URL, "auth": {"kind": "bearer", "value": "Bearer ${X}"}}, "must name a variable"),
        ({"url": URL, "auth": {"kind": "magic", "value": "${X}"}}, "cannot be read"),
        ({"url": URL, "auth": {"kind": "api_key", "value": "${X}"}}, "cannot be read"),
        (
            {"url": URL, "auth": {"kind": "api_key", "header": "Host", "value": "${X}"}},
            "cannot be the header",
        ),
        ({"url": URL, "auth": {"value": "${X}", "in": "query"}}, "unknown key `auth.in`"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_key(entry: Any, said: str) -> None:
    found = problem(entry)
    assert said in found and "friend" in found and "hunter2" not in found


@pytest.mark.parametrize(
    ("url", "plain_http", "fits"),
    [
        ("http://127.0.0.1:9999", True, True),
        ("http://localhost", True, True),
        ("http://[::1]:80", True, True),
        ("http://127.0.0.1:9999", False, False),
        ("http://friend.example", True, False),
        ("http://127.0.0.1.friend.example", True, False),
        ("http://localhost.evil.example", True, False),
    ],
)
def test_plain_http_goes_to_this_machine_alone_and_only_if_it_was_said(
    url: str, plain_http: bool, fits: bool
) -> None:
    for entry in ({"url": url}, {"url": URL, "endpoint": url}):
        assert bool(load_peers({"friend": {**entry, "plain_http": plain_http}}).peers) is fits


@pytest.mark.parametrize(
    ("url", "admitted"),
    [
        ("https://friend.example/rpc", True),
        ("https://FRIEND.example:443/", True),
        ("https://friend.example:444/", False),
        ("http://friend.example/", False),
        ("https://friend.example.evil.example/", False),
        ("https://friend.example@evil.example/", False),
        ("https://evil.example/#https://friend.example", False),
        ("//friend.example", False),
        ("javascript:alert(1)", False),
        ("https://friend.example:bad/", False),
        ("", False),
    ],
)
def test_only_the_origin_that_was_written_down_is_admitted(url: str, admitted: bool) -> None:
    assert A2aPeer("friend", url=URL).allows_url(url) is admitted


@pytest.mark.parametrize("name", ["", "a__b", "1a", "a b", "x" * 33, "../a"])
def test_names_of_peers_are_names_of_files_and_beginnings_of_tools(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a peer"):
        A2aPeer(name, url=URL)


@pytest.mark.parametrize("value", ["", "two\r\nX-Other: lines", "schlüssel"])
def test_a_variable_that_holds_no_header_is_named_and_its_value_is_not(value: str) -> None:
    peer = A2aPeer("friend", url=URL, auth=Auth("FRIEND"))
    with pytest.raises(ConfigError, match="FRIEND") as raised:
        secret_headers(peer, {"FRIEND": value})
    assert not value or value not in str(raised.value)


@pytest.mark.parametrize("given", [7, "text", {"a": 1}, [1], [{"url": URL}]])
def test_settings_of_another_shape_are_sentences(given: Any) -> None:
    loaded = load_peers(given)
    assert loaded.peers == () and loaded.problems


def test_no_settings_are_no_peers() -> None:
    assert load_peers(None).peers == load_peers(()).peers == ()
