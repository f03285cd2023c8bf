"""Access control of local web servers: only browsers and clients with the login, and no requests from other web pages.

Every account of a machine can connect to loopback, and every page in a browser can send requests there. So the address
contains a secret, the token of a session. Requests with another host are refused (a foreign name can be made to resolve
to 127.0.0.1), and so are requests from pages of another origin.

Browsers send a cookie of 127.0.0.1 to every port, and so to servers of other accounts. Therefore the session's cookie
belongs to a name below `localhost` that only the link has. Browsers resolve all such names to loopback (RFC 6761, 6.3).
At 127.0.0.1 a browser asks for user and password, which it keeps only for that port.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Iterable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
USER = "gristmill"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_OWN_HEADERS = HEADERS | {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
# Third-party pages create styles and workers at run time, and may show files in frames. Nothing is loaded from other
# machines.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
_UNLESS_GIVEN = ((b"x-frame-options", b"SAMEORIGIN"), (b"content-security-policy", _POLICY.encode()))
_READING = ("GET", "HEAD")
_TOKEN = "token="
_COOKIE = f"{USER}-login"
_HOST_CHARACTERS = 20  # of a digest of the login: nobody guesses them
_NO_LOGIN = f"""<!doctype html>
<html lang="en"><title>No login</title>
<p>Only the account that started this page can open it. Open the link that <code>{USER} ui</code> printed:
it contains the login.</p>
<p>If you already opened that link and came here from another page, <a href="">reload this page</a>.</p>
"""


class Gate:
    """An ASGI app that passes on requests from its own pages and clients, and refuses all others.

    `login`: `gristmill:TOKEN`, where the token has only characters of `secrets.token_urlsafe`. A browser logs in with
    an address that has the query `token=TOKEN` (see `link`) and gets a session cookie. Clients send the login as HTTP
    Basic authentication. The app must listen on 127.0.0.1, and its server must set the port (`server` of the scope).
    The wrapped app receives neither login, cookie nor origin.

    Raises ValueError for a login without a token.

    It answers 403 to requests with another host or origin, and 401 to requests without the login. A websocket is closed
    before it is accepted. It removes headers from answers that would let other origins read them.
    """

    def __init__(self, app: ASGIApp, login: str) -> None:
        self.app = app
        self.login = login
        self.token = login.partition(":")[2]
        self.host = _host(login)
        if not self.token:
            raise ValueError("a gate needs a login with a token")  # an empty one would let everybody in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        answer = self._answer(scope)
        if answer is None:
            return await self.app(_without_login(scope), receive, _closed_to_others(send))
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        await answer(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """The gate's answer to a request; None if the app may answer."""
        headers, method = Headers(scope=scope), scope.get("method", "GET")  # websockets begin with a GET
        port = (scope.get("server") or ("", None))[1]
        if port is None or not is_local_request(method, headers, (f"{self.host}:{port}", *local_hosts(port))):
            return Response(status_code=HTTPStatus.FORBIDDEN, headers=_OWN_HEADERS)
        is_secret_host = headers["Host"] == f"{self.host}:{port}"
        if is_secret_host and method in _READING and scope["type"] == "http":
            if (login := self._logged_in(scope, headers)) is not None:
                return login
        if not ((is_secret_host and self._has_cookie(headers)) or self._has_login(headers)):
            more = {"Content-Type": "text/html; charset=utf-8"}
            if not is_secret_host:
                more["WWW-Authenticate"] = f'Basic realm="{USER}"'
            return Response(_NO_LOGIN, HTTPStatus.UNAUTHORIZED, _OWN_HEADERS | more)
        return None

    def _logged_in(self, scope: Scope, headers: Headers) -> Response | None:
        """The redirect to the address without the token, with the cookie; None without a token or for a wrong one."""
        parts = scope["query_string"].decode("latin-1").split("&")
        if not any(_equal(part.removeprefix(_TOKEN), self.token) for part in parts if part.startswith(_TOKEN)):
            return None
        rest = "&".join(part for part in parts if not part.startswith(_TOKEN))
        # with the host: a path may begin with two slashes, which would be the name of another host
        address = f"http://{headers['Host']}{_path(scope)}{'?' * bool(rest)}{rest}"
        cookie = f"{_COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        own = _OWN_HEADERS | {"Set-Cookie": cookie}
        if headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
            return Response(status_code=HTTPStatus.SEE_OTHER, headers=own | {"Location": address})
        # a link of another site: browsers send no strict cookie where that link leads, redirections included
        return Response(status_code=HTTPStatus.OK, headers=own | {"Refresh": f"0; url={address}"})

    def _has_cookie(self, headers: Headers) -> bool:
        return any(_equal(value, self.token) for name, value in _cookies(headers) if name == _COOKIE)

    def _has_login(self, headers: Headers) -> bool:
        scheme, _, encoded = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic" or len(headers.getlist("Authorization")) > 1:
            return False
        try:
            login = base64.b64decode(encoded.strip().encode("latin-1"), validate=True)
        except binascii.Error:
            return False
        return hmac.compare_digest(login, self.login.encode())


def link(address: str, login: str) -> str:
    """The address of a page, `http://127.0.0.1:PORT...`, with the login for a browser. A fragment (`#...`) stays
    last."""
    page, mark, fragment = address.replace(LOOPBACK, _host(login), 1).partition("#")
    page += "/" if page.count("/") == 2 else ""
    return f"{page}{'&' if '?' in page else '?'}{_TOKEN}{login.partition(':')[2]}{mark}{fragment}"


def local_hosts(port: int) -> tuple[str, str]:
    """The Host headers that a browser may send to a server on a loopback port."""
    return f"{LOOPBACK}:{port}", f"localhost:{port}"


def is_local_request(method: str, headers: Headers, allowed: Collection[str]) -> bool:
    """Whether a request names one of the hosts, each with its port, and was not sent by a page of another origin.

    A person may follow a link on another page, because that page cannot read the answer.
    """
    hosts, origins, sites = (headers.getlist(name) for name in ("Host", "Origin", "Sec-Fetch-Site"))
    if len(hosts) != 1 or hosts[0] not in allowed:
        return False
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return False
    if all(site in ("none", "same-origin") for site in sites):
        return True
    to_page = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return to_page and method in _READING and not origins


def _host(login: str) -> str:
    """The name below `localhost` of a session's pages."""
    return f"{USER}-{hashlib.sha256(login.encode()).hexdigest()[:_HOST_CHARACTERS]}.localhost"


def _path(scope: Scope) -> str:
    """The path as it was sent, not decoded."""
    return scope["raw_path"].decode("latin-1")


def _cookies(headers: Headers) -> Iterable[tuple[str, str]]:
    for part in ";".join(headers.getlist("Cookie")).split(";"):
        name, _, value = part.partition("=")
        yield name.strip(), value.strip()


def _equal(value: str, secret: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "replace"), secret.encode())


def _without_login(scope: Scope) -> Scope:
    """The scope without login, cookie and origin."""
    headers = Headers(scope=scope)
    kept = [(name, value) for name, value in scope["headers"] if name not in (b"authorization", b"cookie", b"origin")]
    cookies = [f"{name}={value}" for name, value in _cookies(headers) if name not in ("", _COOKIE)]
    if cookies:
        kept.append((b"cookie", "; ".join(cookies).encode("latin-1")))
    return {**scope, "headers": kept}


def _closed_to_others(send: Send) -> Send:
    """`send` without headers that let other origins read answers, and with the headers of this module."""
    own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    replaced = {name for name, _ in own}

    async def send_closed(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            sent = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            kept = [each for each in sent if not (each[0].startswith(b"access-control-") or each[0] in replaced)]
            has = {name for name, _ in kept}
            missing = [(name, value) for name, value in _UNLESS_GIVEN if name not in has]
            message = {**message, "headers": kept + missing + own}
        await send(message)

    return send_closed
