"""Which hosts may be reached: only what was named, however it is spelled, and wherever DNS says it
is.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.sandbox.network.allowed_hosts import AllowedHosts, InvalidHost, canonicalize_host
from ferrule.sandbox.network.ip_addresses import is_public

NAMED = AllowedHosts.parse(
    (
        "example.com",
        "files.example.org:8443",
        "*.cdn.example.net",
        "192.0.2.7",
        "[2001:db8::7]:8080",
        "bücher.example",
        "localhost:5432",
        "10.1.2.3:443",
        "intranet.example:443",
    )
)

ALLOWED = [
    ("example.com", 443),
    ("example.com", 80),
    ("EXAMPLE.Com", 443),
    ("example.com.", 443),
    ("files.example.org", 8443),
    ("a.cdn.example.net", 443),
    ("a.b.cdn.example.net", 80),
    ("192.0.2.7", 80),
    ("192.0.2.7.", 80),
    ("[::ffff:192.0.2.7]", 443),
    ("2001:db8::7", 8080),
    ("[2001:DB8:0::0007]", 8080),
    ("xn--bcher-kva.example", 443),
    ("localhost", 5432),
    ("LOCALHOST.", 5432),
]

REFUSED = [
    # other ports
    ("example.com", 22),
    ("example.com", 8080),
    ("files.example.org", 443),
    ("localhost", 80),
    ("2001:db8::7", 443),
    # names that only look alike
    ("example.com.evil.test", 443),
    ("evilexample.com", 443),
    ("example.co", 443),
    ("www.example.com", 443),
    ("com", 443),
    ("cdn.example.net", 443),
    ("xcdn.example.net", 443),
    (".cdn.example.net", 443),
    ("a..cdn.example.net", 443),
    ("example.com..", 443),
    ("еxample.com", 443),
    ("example。com", 443),
    ("ｅxample.com", 443),
    ("example.com\u200b", 443),
    ("bücher.example", 443),
    ("xn--bucher-kva.example", 443),
    # texts that somebody else could read as a named host
    ("%65xample.com", 443),
    ("example.com%00.evil.test", 443),
    ("example.com%2eevil.test", 443),
    ("example.com\0.evil.test", 443),
    ("user@example.com", 443),
    ("example.com@evil.test", 443),
    ("example.com:443@evil.test", 443),
    ("evil.test#example.com", 443),
    ("evil.test\\example.com", 443),
    ("evil.test/example.com", 443),
    ("example.com ", 443),
    (" example.com", 443),
    ("example.com\t", 443),
    ("example.com\r\nX: y", 443),
    ("", 443),
    (".", 443),
    ("*", 443),
    ("*.cdn.example.net", 443),
    ("[example.com]", 443),
    # this machine and its neighbours, in every spelling
    ("127.0.0.1", 5432),
    ("127.1", 5432),
    ("0x7f.1", 5432),
    ("0x7f000001", 5432),
    ("2130706433", 5432),
    ("0177.0.0.1", 5432),
    ("017700000001", 5432),
    ("127.0.0.1.", 5432),
    ("127.000.000.001", 5432),
    ("[::1]", 5432),
    ("[::ffff:127.0.0.1]", 5432),
    ("[::ffff:7f00:1]", 5432),
    ("[0:0:0:0:0:0:0:1]", 5432),
    ("[::]", 5432),
    ("0.0.0.0", 5432),
    ("0", 5432),
    ("[fe80::1%eth0]", 443),
    ("[2001:db8::7%25eth0]", 8080),
    ("[2001:db8::7%1]", 8080),
    ("169.254.169.254", 80),
    ("0xa9fea9fe", 80),
    ("metadata.google.internal", 80),
    ("app.localhost", 5432),
    ("192.0.2.07", 80),
    ("192.0.519", 80),
    ("192.0.2.8", 80),
    ("0xc0.0.2.7", 80),
    ("3221225991", 80),
    ("192.0.2.7.example.com", 80),
    ("10.1.2.3", 80),
    ("１９２.0.2.7", 80),
]


@pytest.mark.proves("sandbox.network.only-named")
@pytest.mark.parametrize(("host", "port"), ALLOWED)
def test_a_named_host_is_allowed_in_every_spelling_that_means_only_it(host: str, port: int) -> None:
    assert NAMED.refusal(host, port) is None


@pytest.mark.proves("sandbox.network.only-named")
@pytest.mark.parametrize(("host", "port"), REFUSED)
def test_whatever_was_not_named_is_refused(host: str, port: int) -> None:
    assert NAMED.refusal(host, port)


def test_a_refusal_says_what_was_named() -> None:
    assert (
        NAMED.refusal("example.com", 22)
        == "the `network` setting names `example.com` for port 80, 443, not 22"
    )
    assert (
        NAMED.refusal("Evil.test", 443)
        == "`evil.test` is not one of the hosts in the `network` setting"
    )


@pytest.mark.proves("sandbox.network.only-named")
def test_without_entries_nothing_is_allowed() -> None:
    assert not AllowedHosts.parse(())
    assert not AllowedHosts.parse(()).allows("example.com", 443)


NONSENSE = [
    "",
    " ",
    "*",
    "*.",
    "*.com",
    "*.*.example.com",
    "a.*.example.com",
    "ex*mple.com",
    "*.192.0.2.1",
    "https://example.com",
    "example.com/path",
    "//example.com",
    "example.com:",
    "example.com:0",
    "example.com:65536",
    "example.com:http",
    "example.com:1-9",
    "example.com:+80",
    ":443",
    "user@example.com",
    "example..com",
    ".example.com",
    "-example.com",
    "exa mple.com",
    "example.com,example.org",
    "a" * 64 + ".com",
    "::1",
    "::1:8080",
    "2001:db8::1",
    "[::1",
    "::1]",
    "[::1]8080",
    "[fe80::1%eth0]",
    "[example.com]:80",
    "127.1",
    "0x7f000001",
    "2130706433",
    "010.0.0.1",
    "10.0.0.0/8",
    "0.0.0.0",
    "[::]:80",
    "224.0.0.1",
    "[ff02::1]",
    "255.255.255.255",
    "straße.example",
    "exam%70le.com",
    "exa\u200dmple.com",
]


@pytest.mark.parametrize("entry", NONSENSE)
def test_an_entry_that_does_not_say_exactly_what_it_opens_is_an_error_with_a_next_step(
    entry: str,
) -> None:
    with pytest.raises(ConfigError) as problem:
        AllowedHosts.parse(("example.com", entry))
    assert problem.value.code == "network"
    assert f"`{entry}`" in problem.value.detail
    assert "`*.example.com`" in problem.value.hint


LEADS_INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "::1",
    "::ffff:127.0.0.1",
    "0.0.0.0",
    "::",
    "10.0.0.5",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fc00::1",
    "ff02::1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001::1",
    "2001:db8::1",
    "::7f00:1",
    "nonsense",
    "",
]


@pytest.mark.parametrize("address", LEADS_INSIDE)
def test_a_name_does_not_open_an_address_that_is_not_the_open_internet(address: str) -> None:
    assert NAMED.address_refusal("example.com", 443, address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.215.14",
        "1.1.1.1",
        "2606:4700::1111",
        "64:ff9b::101:101",
        "172.32.0.1",
        "100.128.0.1",
    ],
)
def test_a_name_opens_addresses_of_the_open_internet(address: str) -> None:
    assert NAMED.address_refusal("example.com", 443, address) is None


def test_an_inside_address_is_reached_by_name_only_if_the_address_was_named_too() -> None:
    assert NAMED.address_refusal("intranet.example", 443, "10.1.2.3") is None
    assert NAMED.address_refusal("intranet.example", 443, "::ffff:10.1.2.3") is None
    assert NAMED.address_refusal("intranet.example", 80, "10.1.2.3")
    assert NAMED.address_refusal("intranet.example", 443, "10.1.2.4") == (
        "`intranet.example` leads to 10.1.2.4, a private or reserved address: "
        "a name does not open that, only the address itself in the `network` setting does: "
        "`10.1.2.4:443`"
    )


@pytest.mark.parametrize("address", ["10.1.2.4", "fd00::4"])
def test_a_refusal_of_an_inside_address_names_the_entry_that_opens_it(address: str) -> None:
    refusal = NAMED.address_refusal("intranet.example", 8443, address)
    assert refusal is not None
    *_, entry, _ = refusal.split("`")
    opened = AllowedHosts.parse(["intranet.example:8443", entry])
    assert opened.address_refusal("intranet.example", 8443, address) is None


def test_localhost_means_this_machine_and_nothing_else() -> None:
    assert NAMED.address_refusal("localhost", 5432, "127.0.0.1") is None
    assert NAMED.address_refusal("localhost", 5432, "::1") is None
    assert NAMED.address_refusal("localhost", 5432, "93.184.215.14")
    assert NAMED.address_refusal("localhost", 5432, "10.1.2.3")


@pytest.mark.parametrize(
    ("entry", "opens"),
    [
        ("localhost:1", True),
        ("app.localhost", True),
        ("127.0.0.1:1", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("example.com", False),
    ],
)
def test_it_is_known_whether_this_machine_was_opened(entry: str, opens: bool) -> None:
    assert AllowedHosts.parse((entry,)).includes_loopback is opens


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
    | st.from_regex(r"[0-9a-fx.:\[\]%]{1,24}", fullmatch=True)
)
def test_a_host_has_one_spelling_and_it_stays(text: str) -> None:
    try:
        host = canonicalize_host(text)
    except InvalidHost:
        return
    assert canonicalize_host(host) == host
    assert host.isascii() and host == host.lower() and not set(host) & set(" %@/\\?#[]\r\n\0*")


@given(st.ip_addresses())
def test_an_address_that_is_open_is_global_for_python_too(
    address: IPv4Address | IPv6Address,
) -> None:
    if is_public(address) and not (
        address.version == 6 and address.exploded.startswith("0064:ff9b:")
    ):
        assert address.is_global
