"""The pages on the loopback interface, for a browser that has the token.

A web page of elsewhere must not read a corpus through the browser of who looks at it. So the token is in every address,
the Host header has to be the loopback's (a name of elsewhere that is made to lead here is refused), and requests that
another page has made are refused. Nothing is read from files by an address: pages are known by name. One kind of
request writes: a vote, which only a page of ours may send.
"""

import asyncio
import hmac
import logging
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qsl

import uvicorn
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.replay import SupersededError
from gristmill.flows.machine.gate import LOOPBACK, is_local_request, local_hosts
from gristmill.flows.reports import pages as kit

_LOG = logging.getLogger(__name__)
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ASSETS = {
    "style.css": (kit.__name__, "text/css; charset=utf-8"),
    "script.js": ("gristmill.flows.explore.browse", "text/javascript; charset=utf-8"),
}
_HTML, _PLAIN = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_FIELDS = 20  # of a query
_SECONDS = 30  # that a browser may take to send a request


class Server:
    """Serves the pages until it is shut down; `address`: to give to a browser. Used as a block, it closes its port."""

    def __init__(self, pages: Pages, port: int = 0) -> None:
        self._socket = socket.create_server((LOOPBACK, port))
        self.server_address: tuple[str, int] = self._socket.getsockname()
        self.pages = pages
        self.token = secrets.token_urlsafe(24)
        self.hosts = local_hosts(self.server_address[1])
        # nothing is logged: addresses have the token
        config = uvicorn.Config(
            self._app, interface="asgi3", http=_Protocol, ws="none", lifespan="off", timeout_graceful_shutdown=1,
            log_config=None, log_level="critical", access_log=False, server_header=False, proxy_headers=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"

    def serve_forever(self) -> None:
        """Serve until `shutdown`; in the main thread an interrupt ends it, too, and is raised."""
        self._server.run(sockets=[self._socket])

    def shutdown(self) -> None:
        self._server.should_exit = True

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await _in_thread(lambda: self._response(Request(scope)))
        await response(scope, receive, send)

    def _response(self, request: Request) -> Response:
        if request.method in ("GET", "HEAD"):
            return _answer(*self._found(request))
        if request.method == "POST":
            return _answer(*self._voted(request))
        return _answer(HTTPStatus.NOT_IMPLEMENTED)

    def _voted(self, request: Request) -> tuple[HTTPStatus, str, str]:
        """A vote, all of it in the address. Only a page of ours may send one: a browser names its origin."""
        headers = request.headers
        own = headers.get("Origin") == f"http://{headers.get('Host')}"
        if not (own and self._may(request)) or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return HTTPStatus.FORBIDDEN, _PLAIN, ""
        if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _PLAIN, ""
        if _path(request) != f"/{self.token}/vote":
            return HTTPStatus.NOT_FOUND, _PLAIN, ""
        try:
            self.pages.vote(_query(request))
        except LookupError as error:
            return HTTPStatus.NOT_FOUND, _PLAIN, str(error.args[0])
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _PLAIN, str(error)
        except OSError as error:
            _LOG.exception("a vote")
            return HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, f"{type(error).__name__}: {error}"
        return HTTPStatus.OK, _PLAIN, ""

    def _found(self, request: Request) -> tuple[HTTPStatus, str, str]:
        """Status, kind and content."""
        if not self._may(request):
            return HTTPStatus.FORBIDDEN, _PLAIN, ""
        name = _path(request).removeprefix(f"/{self.token}/")
        if name in _ASSETS:
            package, kind = _ASSETS[name]
            return HTTPStatus.OK, kind, kit.resource(name, package)
        try:
            query = _query(request)
            if name == "replay.json":
                return HTTPStatus.OK, "application/json", _json(self.pages.replayed(query))
            if name not in self.pages.by_name:
                raise LookupError("Page not found.")
            return HTTPStatus.OK, _HTML, self.pages.by_name[name](query)
        except SupersededError as error:
            return HTTPStatus.CONFLICT, _HTML, self.pages.error(str(error))
        except LookupError as error:
            return HTTPStatus.NOT_FOUND, _HTML, self.pages.error(str(error.args[0]) if error.args else "")
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _HTML, self.pages.error(str(error))
        except Exception as error:  # one page that fails is no end of the others
            _LOG.exception("the page %s", name)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _HTML, self.pages.error(f"{type(error).__name__}: {error}")

    def _may(self, request: Request) -> bool:
        """Whether the request comes from a page of ours, or from the address bar, and has the token."""
        if not is_local_request(request.method, request.headers, self.hosts):
            return False
        parts = _path(request).split("/")
        token = parts[1] if len(parts) > 2 and not parts[0] else ""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())


class _Protocol(H11Protocol):
    """HTTP whose connections are closed if no request comes: so many seconds of silence hold no port open."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


async def _in_thread(work: Callable[[], Response]) -> Response:
    """The result of what waits for disks, in a thread that does not keep the process from ending."""
    done: Future[Response] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


def _answer(status: HTTPStatus, kind: str = _PLAIN, content: str = "") -> Response:
    return Response(content.encode("utf-8", "replace"), status, _HEADERS | {"Content-Type": kind})


def _path(request: Request) -> str:
    """The path as it was sent, nothing decoded."""
    return request.scope["raw_path"].decode("latin-1")


def _query(request: Request) -> dict[str, str]:
    query = request.scope["query_string"].decode("latin-1")
    return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS))


def _json(found: Any) -> str:
    moved = {name: getattr(found, name).documents for name in ("enter", "leave")}
    return to_json({"changes": found.changes, "unchanged": found.unchanged, "rows": found.rows, **moved}).decode()
