"""Programs that people use, through the sandbox's proxy: they need no settings but their
environment.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest
from proxied import Proxied

from ferrule.sandbox.network.proxy import proxy_environment
from ferrule.testing.http_double import HttpDouble, Reply, Request

HERE = [["127.0.0.1"]]


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def wheel() -> bytes:
    """The smallest package that pip installs."""
    data = io.BytesIO()
    info = "tiny_thing-1.0.dist-info"
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("tiny_thing.py", "VALUE = 42\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "tiny_thing.py,,\n")
    return data.getvalue()


def tarball() -> bytes:
    """The smallest package that npm installs."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, text in (
            ("package.json", '{"name": "tiny-thing", "version": "1.0.0"}'),
            ("index.js", "module.exports = 42"),
        ):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def raw(data: bytes, kind: str) -> Reply:
    return Reply(pieces=[data], framing="length", headers={"content-type": kind})


@needs("curl")
async def test_curl_follows_a_redirect_only_to_a_named_host() -> None:
    places = {
        "/good": "http://other.example:%d/end",
        "/bad": "http://evil.test:%d/end",
        "/inside": "http://[::ffff:127.0.0.1]:22/end?%d",
    }

    def answer(request: Request) -> Reply:
        if request.target in places:
            return Reply(
                302,
                headers={"location": places[request.target] % site.port, "content-length": "0"},
                framing="length",
            )
        return raw(b"the end", "text/plain")

    async with HttpDouble(answer) as site:
        port = site.port
        entries = (f"site.example:{port}", f"other.example:{port}", f"127.0.0.1:{port}")
        async with Proxied(
            *entries, names={"site.example": HERE, "other.example": HERE, "evil.test": HERE}
        ) as proxied:
            ended = {
                path: await proxied.run("curl", "-sSL", f"http://site.example:{port}{path}")
                for path in places
            }
    assert ended["/good"] == (0, "the end")
    assert "`evil.test`" in ended["/bad"][1] and "`network`" in ended["/bad"][1]
    assert "the end" not in ended["/inside"][1] and "the end" not in ended["/bad"][1]
    assert "evil.test" not in proxied.looked_up


@needs("curl")
@needs("openssl")
async def test_curl_speaks_tls_through_a_tunnel_and_says_why_another_was_refused(
    tmp_path: Path,
) -> None:
    key, certificate = tmp_path / "server-key", tmp_path / "server-cert"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=site.example",
            "-addext",
            "subjectAltName=DNS:site.example",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    async with HttpDouble(lambda request: raw(b"secretly", "text/plain"), tls=tls) as site:
        entries = (f"site.example:{site.port}", f"127.0.0.1:{site.port}")
        async with Proxied(*entries, names={"site.example": HERE}) as proxied:
            good = await proxied.run(
                "curl", "-sS", "--cacert", str(certificate), f"https://site.example:{site.port}/"
            )
            port = await proxied.run("curl", "-sSv", "https://site.example:22/")
            host = await proxied.run("curl", "-sSv", "https://evil.test/")
    assert good == (0, "secretly")
    assert port[0] and f"names `site.example` for port {site.port}, not 22" in port[1]
    assert host[0] and "`evil.test` is not one of the hosts in the `network` setting" in host[1]


async def test_python_reads_a_url_and_is_told_what_was_refused() -> None:
    script = """
import urllib.request, urllib.error, sys
print(urllib.request.urlopen(sys.argv[1]).read().decode())
for url in sys.argv[2:]:
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as problem:
        print(problem.code, problem.read().decode())
    except OSError as problem:
        print(problem)
"""
    async with HttpDouble(lambda request: raw(b"hello", "text/plain")) as site:
        entries = (f"site.example:{site.port}", f"127.0.0.1:{site.port}")
        async with Proxied(*entries, names={"site.example": HERE}) as proxied:
            code, out = await proxied.run(
                sys.executable,
                "-I",
                "-c",
                script,
                f"http://site.example:{site.port}/",
                "http://evil.test/",
                "https://evil.test/",
            )
    assert code == 0, out
    assert out.startswith("hello\n403 Ferrule's sandbox did not pass on `evil.test:80`")
    assert "Tunnel connection failed: 403 `evil.test` is not one of the hosts" in out


async def test_pip_installs_a_package_from_a_named_index(tmp_path: Path) -> None:
    package = wheel()
    name = "tiny_thing-1.0-py3-none-any.whl"
    digest = hashlib.sha256(package).hexdigest()

    def answer(request: Request) -> Reply:
        if request.target == "/simple/tiny-thing/":
            link = f'<a href="http://files.example:{site.port}/{name}#sha256={digest}">{name}</a>'
            return raw(f"<!DOCTYPE html><html><body>{link}</body></html>".encode(), "text/html")
        return (
            raw(package, "application/zip")
            if request.target == f"/{name}"
            else Reply(404, framing="length")
        )

    async with HttpDouble(answer) as site:
        entries = (
            f"index.example:{site.port}",
            f"files.example:{site.port}",
            f"127.0.0.1:{site.port}",
        )
        names = {"index.example": HERE, "files.example": HERE}
        async with Proxied(*entries, names=names) as proxied:
            code, out = await proxied.run(
                sys.executable,
                "-m",
                "pip",
                "install",
                "--isolated",
                "--no-cache-dir",
                "--disable-pip-version-check",
                "--target",
                str(tmp_path / "into"),
                "--trusted-host",
                "index.example",
                "--trusted-host",
                "files.example",
                "--index-url",
                f"http://index.example:{site.port}/simple",
                "tiny-thing",
                PIP_CONFIG_FILE="/dev/null",
            )
    assert code == 0, out
    assert (tmp_path / "into" / "tiny_thing.py").read_text() == "VALUE = 42\n"
    assert {contact.host for contact in proxied.contacts} == {"index.example", "files.example"}


@needs("npm")
async def test_npm_installs_a_package_from_a_named_registry(tmp_path: Path) -> None:
    package = tarball()
    integrity = "sha512-" + b64encode(hashlib.sha512(package).digest()).decode()
    (tmp_path / "package.json").write_text('{"name": "here", "version": "1.0.0"}')

    def answer(request: Request) -> Reply:
        if request.target == "/tiny-thing":
            dist = {
                "tarball": f"http://registry.example:{site.port}/tiny.tgz",
                "integrity": integrity,
            }
            version = {"name": "tiny-thing", "version": "1.0.0", "dist": dist}
            return Reply(
                json={
                    "name": "tiny-thing",
                    "dist-tags": {"latest": "1.0.0"},
                    "versions": {"1.0.0": version},
                }
            )
        return (
            raw(package, "application/gzip")
            if request.target == "/tiny.tgz"
            else Reply(404, json={})
        )

    async with HttpDouble(answer) as site:
        entries = (f"registry.example:{site.port}", f"127.0.0.1:{site.port}")
        async with Proxied(*entries, names={"registry.example": HERE}) as proxied:
            code, out = await proxied.run(
                "npm", "install", "tiny-thing", "--no-audit", "--no-fund", "--no-update-notifier",
                "--registry", f"http://registry.example:{site.port}/", folder=str(tmp_path),
            )  # fmt: skip
    assert code == 0, out
    assert (
        tmp_path / "node_modules" / "tiny-thing" / "index.js"
    ).read_text() == "module.exports = 42"
    assert {contact.host for contact in proxied.contacts if contact.allowed} == {"registry.example"}


@needs("git")
async def test_git_asks_through_the_proxy_and_is_refused_elsewhere() -> None:
    packet = (
        b"001e# service=git-upload-pack\n0000" + b"003d" + b"1" * 40 + b" refs/heads/main\n0000"
    )

    def answer(request: Request) -> Reply:
        return raw(packet, "application/x-git-upload-pack-advertisement")

    async with HttpDouble(answer) as site:
        entries = (f"git.example:{site.port}", f"127.0.0.1:{site.port}")
        async with Proxied(*entries, names={"git.example": HERE}) as proxied:
            good = await proxied.run("git", "ls-remote", f"http://git.example:{site.port}/it.git")
            bad = await proxied.run("git", "ls-remote", "https://evil.test/it.git")
    assert good == (0, "1" * 40 + "\trefs/heads/main\n")
    assert bad[0] != 0 and "403" in bad[1]


@needs("curl")
async def test_many_clients_at_once_are_all_answered() -> None:
    async with HttpDouble(
        lambda request: raw(request.target.encode() * 5000, "text/plain")
    ) as site:
        entries = (f"site.example:{site.port}", f"127.0.0.1:{site.port}")
        async with Proxied(*entries, names={"site.example": HERE}) as proxied:
            urls = f"http://site.example:{site.port}/[1-200]"
            code, out = await proxied.run(
                "curl",
                "-sS",
                "--parallel",
                "--parallel-max",
                "100",
                urls,
                "-o",
                "/dev/null",
                "-w",
                "\nsize %{size_download}\n",
            )
    assert code == 0, out
    assert sum(map(int, re.findall(r"^size (\d+)$", out, re.M))) == 5000 * sum(
        len(f"/{n}") for n in range(1, 201)
    )
    assert len(proxied.contacts) == 200


def test_the_clients_environment_excepts_the_loopback_of_the_command_itself() -> None:
    values = proxy_environment(31280)
    assert (
        values["no_proxy"]
        == values["NO_PROXY"]
        == values["npm_config_noproxy"]
        == f"localhost,127.0.0.1,::1,0.0.0.0,{socket.gethostname()}"
    )
    assert {
        values[name]
        for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "npm_config_https_proxy")
    } == {"http://127.0.0.1:31280"}
    assert proxy_environment(1, loopback_outside=True)["NO_PROXY"] == ""
