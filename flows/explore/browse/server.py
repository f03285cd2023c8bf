"""The pages on the loopback interface, for a browser that has the token.

A web page of elsewhere must not read a corpus through the browser of who looks at it. So the token is in every address,
the Host header has to be the loopback's (a name of elsewhere that is made to lead here is refused), and requests that
another page has made are refused. Nothing is read from files by an address: pages are known by name. One kind of
request writes: a vote, which only a page of ours may send.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files as resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic_core import to_json

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.opened import Opened, summary
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.replay import SupersededError
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import templates
from gristmill.flows.reports.diff.columns import QUANTILES
from gristmill.flows.reports.marking import beginning, excerpt
from gristmill.storage import files

MOST_BYTES = 5_000_000
# Documents of a rule, and characters of each that are shown: what fits first is taken.
_SIZES = ((5, 1500), (5, 600), (3, 300), (1, 300), (0, 0))


def write(opened: Opened, to: str, seed: int = 1) -> str:
    """Write the page, and return its path. The same stages and seed give the same bytes."""
    files.write_bytes(to, page(opened, seed).encode("utf-8", "replace"))
    return to


def page(opened: Opened, seed: int = 1) -> str:
    """The page. Holds what is shown. Raises ValueError where the funnel and the summaries alone are too large."""
    most, _ = _SIZES[0]
    dropped = {
        (step.key, rule): draws.dropped(opened, step, rule, most, seed)
        for step in opened.steps
        for rule in step.drops
        if "takedown" not in rule and "takedown" not in step.row.step
    }
    kept = draws.kept(opened, 2 * most, seed)
    digest = base64.b64encode(hashlib.sha256(templates.style().encode()).digest()).decode()
    found = summary(opened)
    for each, characters in _SIZES:
        shown = {
            key: [(one.dropped, excerpt(one.dropped.text or "", one.dropped.marks, characters)) for one in some[:each]]
            for key, some in dropped.items()
        }
        written = templates.template("static.html", "gristmill.flows.explore.browse").render(
            opened=opened,
            static=True,
            link=None,
            digest=digest,
            seed=seed,
            each=each,
            dropped=shown,
            kept=[(one, beginning(one.text, characters)) for one in kept[: 2 * each]],
            summary=found,
            quantiles=QUANTILES,
            recipe=dump(opened.recipe),
        )
        if len(written.encode("utf-8", "replace")) < MOST_BYTES:
            return written
    raise ValueError(f"the page of {opened.recipe.name} is larger than {MOST_BYTES:,} bytes without any document")


_LOG = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
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
    "style.css": ("gristmill.flows.reports", "text/css; charset=utf-8"),
    "script.js": ("gristmill.flows.explore.browse", "text/javascript; charset=utf-8"),
}
_HTML, _PLAIN = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_FIELDS = 20  # of a query
_SECONDS = 30  # that a browser may take to send a request


class Server(ThreadingHTTPServer):
    """Serves the pages until it is shut down; `address`: to give to a browser."""

    daemon_threads = True

    def __init__(self, pages: Pages, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.pages = pages
        self.token = secrets.token_urlsafe(24)
        self.hosts = tuple(f"{name}:{self.server_address[1]}" for name in (LOOPBACK, "localhost"))

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "gristmill", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answer(*self._found())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """A vote, all of it in the address. Only a page of ours may send one: a browser names its origin."""
        own = self.headers.get("Origin") == f"http://{self.headers.get('Host')}"
        if not (own and self._may()) or self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return self._answer(HTTPStatus.FORBIDDEN, _PLAIN, "")
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            return self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        asked = urlsplit(self.path)
        if asked.path != f"/{self.server.token}/vote":
            return self._answer(HTTPStatus.NOT_FOUND, _PLAIN, "")
        try:
            self.server.pages.vote(_query(asked.query))
        except LookupError as error:
            return self._answer(HTTPStatus.NOT_FOUND, _PLAIN, str(error.args[0]))
        except ValueError as error:
            return self._answer(HTTPStatus.BAD_REQUEST, _PLAIN, str(error))
        except OSError as error:
            _LOG.exception("a vote")
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, f"{type(error).__name__}: {error}")
        return self._answer(HTTPStatus.OK, _PLAIN, "")

    def _found(self) -> tuple[HTTPStatus, str, str]:
        """Status, kind and content."""
        if not self._may():
            return HTTPStatus.FORBIDDEN, _PLAIN, ""
        asked = urlsplit(self.path)
        name = asked.path.removeprefix(f"/{self.server.token}/")
        if name in _ASSETS:
            package, kind = _ASSETS[name]
            return HTTPStatus.OK, kind, resources(package).joinpath(name).read_text(encoding="utf-8")
        pages = self.server.pages
        page: Callable | None = pages.by_name.get(name)
        try:
            query = _query(asked.query)
            if name == "replay.json":
                return HTTPStatus.OK, "application/json", _json(pages.replayed(query))
            if page is None:
                raise LookupError("There is no such page.")
            return HTTPStatus.OK, _HTML, page(query)
        except SupersededError as error:
            return HTTPStatus.CONFLICT, _HTML, pages.error(str(error))
        except LookupError as error:
            return HTTPStatus.NOT_FOUND, _HTML, pages.error(str(error.args[0]) if error.args else "")
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _HTML, pages.error(str(error))
        except Exception as error:  # one page that fails is no end of the others
            _LOG.exception("the page %s", name)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _HTML, pages.error(f"{type(error).__name__}: {error}")

    def _may(self) -> bool:
        """Whether the request comes from a page of ours, or from the address bar, and has the token."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            return False
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not self._is_followed_link():
            return False
        token = self.path.split("/")[1] if self.path.startswith("/") and self.path.count("/") > 1 else ""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())

    def _is_followed_link(self) -> bool:
        """Whether a person has followed a link to a page: the page that has the link is given nothing of it."""
        how = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
        return how == ("navigate", "document") and self.headers.get("Origin") is None

    def _answer(self, status: HTTPStatus, kind: str, content: str) -> None:
        data = content.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A request that is none, or of another kind than GET, HEAD and POST: a status, and nothing else."""
        self.close_connection = True
        self._answer(HTTPStatus(code), _PLAIN, "")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: addresses have the token."""


def _query(given: str) -> dict[str, str]:
    return dict(parse_qsl(given, keep_blank_values=True, max_num_fields=_FIELDS))


def _json(found: Any) -> str:
    moved = {name: getattr(found, name).documents for name in ("enter", "leave")}
    return to_json({"changes": found.changes, "unchanged": found.unchanged, "rows": found.rows, **moved}).decode()
