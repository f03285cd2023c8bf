"""Who may read a local server: raw requests to one on uvicorn, and scopes of all kinds to the gate itself."""

import asyncio
import base64
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection, HTTPMessage
from string import ascii_letters, digits
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gristmill.flows.machine.gate import Gate, is_local_request, link, local_hosts

TOKEN = "dGhlIHRva2VuIG9mIHRoaXMgc2Vzc2lvbg-_"
LOGIN = f"gristmill:{TOKEN}"
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")


class Protected:
    """An app that counts what reaches it, and is open to all origins, as Prefect's is."""

    def __init__(self) -> None:
        self.requests: list[Request | WebSocket] = []

        async def answer(request: Request) -> JSONResponse:
            self.requests.append(request)
            opened = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true", "X-Own": "kept"}
            headers = dict(request.headers.items())
            return JSONResponse({"path": request.url.path, "headers": headers}, headers=opened)

        async def echo(socket: WebSocket) -> None:
            self.requests.append(socket)
            await socket.accept()
            await socket.send_text("authorization" in socket.headers and "login" or "no login")
            await socket.close()

        self.app = Starlette(
            routes=[WebSocketRoute("/events", echo), Route("/{path:path}", answer, methods=list(METHODS))],
        )


class Served:
    """Such an app behind a gate on a port of loopback."""

    def __init__(self) -> None:
        self.protected = Protected()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        config = uvicorn.Config(
            Gate(self.protected.app, LOGIN), log_config=None, log_level="critical", access_log=False
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def ask(
        self,
        path: str = "/",
        method: str = "GET",
        headers: list[tuple[str, str]] | None = None,
        host: str | None = None,
    ) -> tuple[int, HTTPMessage, bytes]:
        """`{port}` in values is the server's."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", (host or "127.0.0.1:{port}").format(port=self.port))
        for name, value in headers or []:
            connection.putheader(name, value.format(port=self.port))
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        return answer

    def reached(self) -> int:
        return len(self.protected.requests)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.server.should_exit = True
    made.thread.join()


def basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


AUTHORIZED = ("Authorization", basic(LOGIN))
COOKIE = ("Cookie", f"gristmill-login={TOKEN}")
PAGE = link("http://127.0.0.1:1", LOGIN).removeprefix("http://").partition(":")[0] + ":{port}"
LOOPBACK = ("127.0.0.1:{port}", "localhost:{port}")


@pytest.mark.parametrize(("login", "host"), [*((AUTHORIZED, host) for host in (*LOOPBACK, PAGE)), (COOKIE, PAGE)])
def test_a_login_of_this_session_is_let_through_and_not_handed_on(served, host, login):
    extra = [login, ("Origin", "http://" + host), ("Sec-Fetch-Site", "same-origin"), ("X-Other", "1")]
    for method in METHODS:
        status, headers, content = served.ask("/api/x?y=1", method, extra, host)
        assert status == 200 and headers["X-Own"] == "kept"
        assert not [name for name in headers if name.lower().startswith("access-control-")]
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Frame-Options"] == "SAMEORIGIN"
        if method == "POST":
            assert TOKEN.encode() not in content and b"x-other" in content
            assert b"authorization" not in content and b'"origin"' not in content


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_cookie_counts_only_under_the_name_that_the_link_has(served, host):
    """Browsers send a cookie of 127.0.0.1 to all ports of it, and so to servers of other accounts."""
    before = served.reached()
    for path in ("/", f"/?token={TOKEN}"):
        status, headers, _ = served.ask(path, headers=[COOKIE], host=host)
        assert status == 401 and "Set-Cookie" not in headers
        assert headers["WWW-Authenticate"] == 'Basic realm="gristmill"'  # which a browser keeps for this port
    assert "WWW-Authenticate" not in served.ask(host=PAGE)[1]
    assert served.reached() == before


def test_each_session_has_a_name_of_its_own():
    names = {link("http://127.0.0.1:1", f"gristmill:{number}").partition(":1/")[0] for number in range(100)}
    assert len(names) == 100


def test_other_cookies_reach_the_app_and_those_of_gates_do_not(served):
    cookies = f"theme=dark; gristmill-login={TOKEN}; gristmill-login=other; a=b=c"
    status, _, content = served.ask(headers=[("Cookie", cookies)], host=PAGE)
    assert status == 200 and b'"cookie":"theme=dark; a=b=c"' in content


def test_a_second_cookie_of_the_same_name_locks_nobody_out(served):
    """Another server of this host can set one."""
    cookies = f"gristmill-login=x; gristmill-login={TOKEN}"
    assert served.ask(headers=[("Cookie", cookies)], host=PAGE)[0] == 200


@pytest.mark.parametrize("path", ["/", "/flow-runs/1", "//harm.example/x", "/a%0d%0ab"])
def test_a_link_becomes_a_cookie_and_an_address_without_the_token(served, path):
    before = served.reached()
    status, headers, content = served.ask(f"{path}?a=1&token={TOKEN}&b=%20", host=PAGE)
    assert status == 303 and served.reached() == before
    assert headers["Location"] == f"http://{PAGE.format(port=served.port)}{path}?a=1&b=%20"
    assert headers["Set-Cookie"] == f"gristmill-login={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    assert TOKEN not in headers["Location"] and content == b""
    assert served.ask(f"{path}?token={TOKEN}", host=PAGE)[1]["Location"].endswith(path)


def test_a_link_that_a_person_follows_from_another_site_loads_again_from_here(served):
    """Browsers send no strict cookie along the redirections of such a link."""
    status, headers, _ = served.ask(f"/x?token={TOKEN}", headers=FOLLOWED, host=PAGE)
    assert status == 200 and headers["Refresh"] == f"0; url=http://{PAGE.format(port=served.port)}/x"
    assert TOKEN in headers["Set-Cookie"]


def test_links_keep_fragments_and_queries():
    page = f"http://{PAGE.format(port=1)}"
    assert link("http://127.0.0.1:1/", LOGIN) == f"{page}/?token={TOKEN}"
    assert link("http://127.0.0.1:1/a?b=1#/c?d=2", LOGIN) == f"{page}/a?b=1&token={TOKEN}#/c?d=2"


CROSS = ("Sec-Fetch-Site", "cross-site")
FOLLOWED = [CROSS, ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
FOREIGN = {
    "another origin": [("Origin", "http://harm.example")],
    "another port": [("Origin", "http://127.0.0.1:1")],
    "the other name": [("Origin", "http://localhost:{port}")],
    "another scheme": [("Origin", "https://127.0.0.1:{port}")],
    "no origin": [("Origin", "null")],
    "an empty origin": [("Origin", "")],
    "two origins": [("Origin", "http://127.0.0.1:{port}"), ("Origin", "http://harm.example")],
    "another site": [CROSS],
    "another port of this host": [("Sec-Fetch-Site", "same-site")],
    "a frame": [CROSS, ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")],
    "an image": [CROSS, ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "image")],
    "a form": [*FOLLOWED, ("Origin", "http://harm.example")],
    "two sites": [("Sec-Fetch-Site", "none"), CROSS],
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_what_another_page_sends_is_refused_with_the_login_too(served, headers):
    before = served.reached()
    for method in METHODS:
        for login in ([AUTHORIZED], [COOKIE], []):
            status, answered, content = served.ask(f"/x?token={TOKEN}", method, [*headers, *login])
            assert status == 403 and content == b"" and "Set-Cookie" not in answered
            assert not [name for name in answered if name.lower().startswith("access-control-")]
    assert served.reached() == before


def test_a_link_without_token_may_be_followed_by_whom_is_logged_in(served):
    assert served.ask(headers=[*FOLLOWED, AUTHORIZED])[0] == 200
    assert served.ask(headers=FOLLOWED)[0] == 401
    assert served.ask(method="POST", headers=[*FOLLOWED, AUTHORIZED])[0] == 403


HOSTS = ["harm.example", "harm.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:0{port}", "127.0.0.1.:{port}",
         "localhost", "LOCALHOST:{port}", "localhost.:{port}", "a.localhost:{port}", "[::1]:{port}", "0.0.0.0:{port}",
         "127.1:{port}", "2130706433:{port}", "127.0.0.1:{port}, harm.example", "x@127.0.0.1:{port}", " "]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_another_host_is_refused_with_the_login_too(served, host):
    before = served.reached()
    for login in (AUTHORIZED, COOKIE):
        assert served.ask(f"/?token={TOKEN}", headers=[login], host=host)[0] == 403
    assert served.reached() == before


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("hosts", [(), ("127.0.0.1:{port}", "harm.example"), ("127.0.0.1:{port}", "127.0.0.1:{port}")])
def test_no_host_and_two_hosts_are_refused(served, protocol, hosts):
    before = served.reached()
    lines = [f"GET / {protocol}", *(f"Host: {host.format(port=served.port)}" for host in hosts)]
    lines += [f"Authorization: {basic(LOGIN)}", "Connection: close"]
    answer = served.raw("\r\n".join([*lines, "", ""]).encode())
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")) and served.reached() == before


WRONG = [TOKEN[:-1], TOKEN + "A", TOKEN[:-1] + "A", TOKEN.lower(), "", "é" * len(TOKEN), "%00"]


@pytest.mark.parametrize("token", WRONG)
def test_a_wrong_token_says_where_the_link_is(served, token):
    before = served.reached()
    cookie = token.encode().decode("latin-1")
    ask = partial(served.ask, host=PAGE)
    tries = [
        ask(f"/?token={token}") if token.isascii() else ask("/?token=%C3%A9"),
        ask(headers=[("Cookie", f"gristmill-login={cookie}")]),
        ask(headers=[("Authorization", basic(f"gristmill:{token}"))]),
        ask(headers=[("Authorization", f"Bearer {TOKEN}")]),
        ask(headers=[("Authorization", basic(f"other:{TOKEN}"))]),
        ask(headers=[("Authorization", "Basic =")]),
        ask(headers=[("Authorization", "Basic é")]),
        ask(headers=[AUTHORIZED, ("Authorization", basic("x:y"))]),
        ask(headers=[("Cookie", f"gristmill-80={TOKEN}")]),
        ask(headers=[("Cookie", f"gristmill={TOKEN}; {TOKEN}; ={TOKEN}")]),
        ask(f"/token={TOKEN}"),
        ask(f"/?Token={TOKEN}&atoken={TOKEN}"),
        ask(f"/?token={TOKEN}", "POST"),
    ]
    for status, headers, content in tries:
        assert status == 401 and b"gristmill ui" in content and "Set-Cookie" not in headers
    assert served.reached() == before


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": basic("gristmill:x")}, {"Cookie": f"gristmill-login={TOKEN}"},
     {"Authorization": basic(LOGIN), "Origin": "http://harm.example"},
     {"Authorization": basic(LOGIN), "Sec-Fetch-Site": "cross-site"}],
)  # fmt: skip
def test_a_websocket_without_login_is_closed_before_it_is_accepted(served, headers):
    before = served.reached()
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://127.0.0.1:{served.port}/events?token={TOKEN}", additional_headers=headers)
    assert refusal.value.response.status_code == 403 and served.reached() == before


@pytest.mark.parametrize(("login", "host"), [(AUTHORIZED, LOOPBACK[0]), (COOKIE, PAGE)])
def test_a_websocket_with_the_login_is_open(served, login, host):
    name, value = login
    headers = {name: value, "Origin": f"http://{host.format(port=served.port)}"}
    to_loopback = socket.create_connection(("127.0.0.1", served.port))
    address = f"ws://{host.format(port=served.port)}/events"
    with connect(address, additional_headers=headers, sock=to_loopback) as opened:
        assert opened.recv(timeout=60) == "no login"


def called(scope: dict[str, Any]) -> tuple[bool, list[dict]]:
    """Whether the app was reached, and what was sent."""
    reached, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def receive() -> dict:
        return {"type": "http.request"}

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(Gate(app, LOGIN)(scope, receive, send))
    return bool(reached), sent


def test_lifespan_passes_and_a_server_without_port_does_not():
    assert called({"type": "lifespan"})[0]
    headers = [(b"host", b"127.0.0.1:80"), (b"authorization", basic(LOGIN).encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": headers}
    assert called(scope | {"server": ("127.0.0.1", 80)}) == (True, [])
    for server in (None, ("/run/socket", None)):
        reached, sent = called(scope | {"server": server})
        assert not reached and sent[0]["status"] == 403


NAMES = st.sampled_from(["host", "origin", "cookie", "authorization", "sec-fetch-site", "sec-fetch-mode", "x-other"])
VALUES = st.one_of(
    st.text(ascii_letters + digits + " :/;=,.-_[]", max_size=40),
    st.sampled_from(["127.0.0.1:80", "localhost:80", "http://127.0.0.1:80", "null", "cross-site", "navigate", "none"]),
    st.sampled_from(["gristmill-login=x", f"gristmill-login={TOKEN}", basic("gristmill:x"), "Basic", f"Basic {TOKEN}"]),
)


@given(st.lists(st.tuples(NAMES, VALUES)), st.binary(max_size=60), st.sampled_from(["http", "websocket"]),
       st.sampled_from(METHODS))  # fmt: skip
def test_nothing_without_the_token_gets_through(headers, query, kind, method):
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "path": "/", "raw_path": b"/", "query_string": query, "headers": raw}
    scope |= {"server": ("127.0.0.1", 80)} | ({"method": method} if kind == "http" else {})
    reached, sent = called(scope)
    assert not reached
    assert (
        sent[0].get("status") in (401, 403) if kind == "http" else sent == [{"type": "websocket.close", "code": 1008}]
    )


@given(st.lists(st.tuples(NAMES, VALUES)), st.sampled_from(METHODS))
def test_only_requests_that_name_this_server_are_local(headers, method):
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    if is_local_request(method, Headers(raw=raw), local_hosts(80)):
        assert [value for name, value in headers if name == "host"] in (["127.0.0.1:80"], ["localhost:80"])
        assert not [value for name, value in headers if name == "origin" and "80" not in value]


def test_a_login_is_compared_whole():
    """Every single character and length of a login that differs is refused."""
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b""}
    scope |= {"server": ("127.0.0.1", 80)}
    for place in range(len(LOGIN)):
        for wrong in (LOGIN[:place], LOGIN[:place] + "~" + LOGIN[place + 1 :], LOGIN[:place] + "~" + LOGIN[place:]):
            headers = [(b"host", b"127.0.0.1:80"), (b"authorization", basic(wrong).encode())]
            assert not called(scope | {"headers": headers})[0]
