"""A server sends its reader to public places alone, and a list from elsewhere names nothing of this machine."""

import asyncio
import datetime
import http.server
import ipaddress
import socket
import ssl
import threading

import pytest

from gristmill.storage.files import read_bytes
from gristmill.storage.remote import config, redirects
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.redirects import checked_client
from gristmill.storage.remote.retry import BadResponse, RemoteIOError
from gristmill.tasks.reading.sources import Archives
from tests.crawl_server import Fault


@pytest.fixture(autouse=True)
def _default():
    yield
    config.configure(RemoteIOConfig())


def redirected(server, target) -> str:
    (server.folder / "there").write_bytes(b"content")
    server.plan = lambda path, start, nth: Fault("status", 302, (("Location", target),)) if path == "here" else None
    return f"{server.url}/here"


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.2", "169.254.169.254", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]"]
)
def test_a_redirect_to_another_private_host_is_refused(crawl_server, host):
    address = redirected(crawl_server, f"http://{host}:{crawl_server.url.rpartition(':')[2]}/there")
    with pytest.raises(RemoteIOError, match=r"/here.*redirects to .*GRISTMILL_REMOTE_IO__PRIVATE_REDIRECTS=true"):
        read_bytes(address)
    assert [request.path for request in crawl_server.requests] == ["here"]


def test_a_redirect_within_a_host_and_one_that_is_allowed_are_followed(crawl_server):
    assert read_bytes(redirected(crawl_server, "/there")) == b"content"
    assert read_bytes(f"{crawl_server.url.replace('127.0.0.1', 'localhost')}/there") == b"content"
    config.configure(RemoteIOConfig(private_redirects=True))
    port = crawl_server.url.rpartition(":")[2]
    assert read_bytes(redirected(crawl_server, f"http://localhost:{port}/there")) == b"content"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_port_of_a_private_host_is_another_server(crawl_server, host):
    """A list that a server has may lead to whatever else listens there."""
    port = int(crawl_server.url.rpartition(":")[2])
    address = redirected(crawl_server, f"http://{host}:{port + 1}/there").replace("127.0.0.1", host)
    with pytest.raises(RemoteIOError, match=rf"redirects to {host}:{port + 1}, .*PRIVATE_REDIRECTS=true"):
        read_bytes(address)


class Moving:
    """Answers with a public address first, and then with one that is not."""

    def __init__(self) -> None:
        self.answers = iter(["127.0.0.1", "127.0.0.2", "127.0.0.2"])

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict]:
        address = next(self.answers)
        return [{"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


def test_a_name_whose_address_moves_is_checked_again(crawl_server, monkeypatch):
    """As by an attacker who has the name: its server redirects to itself, which by now is a machine behind this one."""
    monkeypatch.setattr(redirects, "DefaultResolver", Moving)
    monkeypatch.setattr(redirects, "_is_public", lambda host: host == "127.0.0.1")
    port = crawl_server.url.rpartition(":")[2]
    redirected(crawl_server, "/there")

    async def get() -> bytes:
        async with await checked_client() as client:
            return await (
                await client.get(f"http://moving.example:{port}/here", headers={"Connection": "close"})
            ).read()

    with pytest.raises(BadResponse, match=f"redirects to moving.example:{port}, an address of this machine"):
        asyncio.run(get())
    assert [request.path for request in crawl_server.requests] == ["here"]


def test_a_glob_follows_no_redirect_to_a_private_host(crawl_server):
    port = crawl_server.url.rpartition(":")[2]
    crawl_server.plan = lambda path, start, nth: Fault("status", 302, (("Location", f"http://localhost:{port}/x/"),))
    with pytest.raises(RemoteIOError, match="redirects to localhost"):
        Archives(name="web", warc=(f"{crawl_server.url}/a/*.warc",)).shards()


def test_https_is_not_left(tmp_path, crawl_server):
    address = serve_tls(tmp_path, redirect=f"{crawl_server.url}/there")

    async def get() -> None:
        async with await checked_client() as client:
            await client.get(address, ssl=False)

    with pytest.raises(BadResponse, match="redirects from https to http://127.0.0.1, which is not allowed"):
        asyncio.run(get())
    assert not crawl_server.requests


def serve_tls(folder, redirect) -> str:
    """The address of a server with a certificate of its own that redirects each request."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    subject = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = built.add_extension(subject, critical=False).sign(key, hashes.SHA256())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "server.pem").write_bytes(pem)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.handle_request, daemon=True).start()
    return f"https://127.0.0.1:{server.server_port}/here"


@pytest.mark.parametrize(
    "line",
    [
        *("/etc/passwd", "file:///etc/passwd", "s3://bucket/a.warc", "memory://a.warc", "FILE:///etc/passwd"),
        *("simplecache::/etc/passwd", "::file:///etc/passwd", "local:///etc/passwd"),
    ],
)
def test_a_remote_list_names_no_file_of_this_machine_and_no_other_store(crawl_server, line):
    (crawl_server.folder / "a.paths").write_text(f"good.warc\n{line}\n")
    with pytest.raises(ValueError, match="a.paths has .*a list that is read from http://"):
        Archives(name="web", warc=(f"{crawl_server.url}/a.paths",)).shards()


def test_a_remote_list_names_no_private_host_but_its_own(crawl_server):
    own = f"{crawl_server.url}/a.warc"
    (crawl_server.folder / "a.paths").write_text(own)
    assert [shard.path for shard in Archives(name="web", warc=(f"{crawl_server.url}/a.paths",)).shards()] == [own]
    (crawl_server.folder / "a.paths").write_text("http://169.254.169.254/latest/meta-data\n")
    with pytest.raises(ValueError, match=r"a.paths names 169.254.169.254, an address of this machine or of a private"):
        Archives(name="web", warc=(f"{crawl_server.url}/a.paths",)).shards()


def test_a_list_on_this_machine_names_what_it_likes(tmp_path):
    (tmp_path / "a.paths").write_text("/crawl/a.warc\ns3://bucket/b.warc\n")
    for named in (f"{tmp_path}/a.paths", f"file://{tmp_path}/a.paths"):
        paths = [shard.path for shard in Archives(name="web", warc=(named,)).shards()]
        assert paths == ["/crawl/a.warc", "s3://bucket/b.warc"]
