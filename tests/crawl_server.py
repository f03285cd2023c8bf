"""Servers on loopback that stand for Common Crawl's and for an object store, and can behave as badly as they do."""

import hashlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

Plan = Callable[[str, int, int], "Fault | None"]


@dataclass(frozen=True)
class Fault:
    """What happens to one answer.

    `status`: this one, with `headers` and `body`, in place of the bytes. `reset`, `truncated`, `stalled`: the body
    breaks off in its middle by a reset connection, by its end, or by silence. `short`: half of the range, under a
    length that agrees with it. `shifted`: the bytes one further, which the answer's header says.
    """

    kind: str
    status: int = 503
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"slow down"


BAD_MOMENTS = (
    Fault("status", 403),
    Fault("status", 429, (("Retry-After", "0"),)),
    Fault("status", 500),
    Fault("status", 502),
    Fault("status", 503),
    Fault("status", 503, (("Retry-After", "0"),)),
    Fault("status", 504),
    Fault("reset"),
    Fault("truncated"),
    Fault("short"),
    Fault("shifted"),
)


def seeded(seed: int, share: float, faults: tuple[Fault, ...] = BAD_MOMENTS, in_a_row: int = 3) -> Plan:
    """A share of all answers goes wrong, but never more than `in_a_row` to the same range."""

    def plan(path: str, start: int, nth: int) -> Fault | None:
        draw = random.Random(f"{seed} {path} {start} {nth}")
        return draw.choice(faults) if nth < in_a_row and draw.random() < share else None

    return plan


@dataclass
class Request:
    path: str
    start: int | None
    end: int | None
    fault: Fault | None


@dataclass
class CrawlServer:
    """The files under `folder`, as `<url>/<path>`. `plan(path, start, nth time)` says what goes wrong.

    `authorization`: the header without which a request gets 401. `requests` are those that came, `most` how many of
    them waited at a time for the `delay` (seconds) to be over.
    """

    folder: Path
    url: str = ""
    plan: Plan = lambda path, start, nth: None
    ranges: bool = True
    framing: Literal["length", "chunked", "close"] = "length"
    tags: bool = True
    extra: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    authorization: str = ""
    stall: float = 1.0
    requests: list[Request] = field(default_factory=list)
    most: int = 0
    busy: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: Counter = field(default_factory=Counter)

    def faults(self) -> Counter:
        return Counter(r.fault.kind for r in self.requests if r.fault)


def _handler(server: CrawlServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            with server.lock:
                server.busy += 1
                server.most = max(server.most, server.busy)
            time.sleep(server.delay)
            # before the answer: whoever has it may ask again at once
            with server.lock:
                server.busy -= 1
            try:
                self._answer()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _answer(self):
            if server.authorization not in ("", self.headers.get("Authorization")):
                return self._say(401, b"who are you?")
            path = self.path.lstrip("/")
            file = server.folder / path
            asked = self.headers.get("Range")
            first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
            start = int(first)
            with server.lock:
                nth = server.seen[path, start]
                server.seen[path, start] += 1
                fault = server.plan(path, start, nth)
                server.requests.append(Request(path, start if asked else None, int(last) + 1 if last else None, fault))
            if fault and fault.kind == "status":
                return self._say(fault.status, fault.body, *fault.headers)
            if not file.is_file():
                return self._say(404, b"no such key")
            data = file.read_bytes()
            headers = [("Accept-Ranges", "bytes" if server.ranges else "none")]
            headers.extend(server.extra)
            if server.tags:
                headers.append(("ETag", f'"{hashlib.md5(data).hexdigest()}"'))
            if not server.ranges or not asked:
                return self._send(200, data, headers, fault)
            if start >= len(data):
                return self._say(416, b"", ("Content-Range", f"bytes */{len(data)}"))
            start += 1 if fault and fault.kind == "shifted" else 0
            piece = data[start : int(last) + 1 if last else len(data)]
            said = f"bytes {start}-{start + len(piece) - 1}/{len(data)}"
            self._send(206, piece, [*headers, ("Content-Range", said)], fault)

        def _say(self, status: int, body: bytes, *headers: tuple[str, str]):
            self._send(status, body, list(headers), None)

        def _send(self, status: int, body: bytes, headers: list[tuple[str, str]], fault: Fault | None):
            if fault and fault.kind == "short":
                body = body[: len(body) // 2]
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if server.framing == "length":
                self.send_header("Content-Length", str(len(body)))
            elif server.framing == "chunked":
                self.send_header("Transfer-Encoding", "chunked")
                chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)]
                body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            if not fault or fault.kind not in ("reset", "truncated", "stalled"):
                self.wfile.write(body)
                return
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            if fault.kind == "stalled":
                time.sleep(server.stall)
            if fault.kind == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    return Handler


@contextmanager
def serve(folder: Path) -> Iterator[CrawlServer]:
    server = CrawlServer(folder)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    httpd.handle_error = lambda *_: None
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@dataclass
class ObjectStore:
    """moto's S3. `refuse(method, path, nth)` may answer a status: the request is then refused with it.

    `environment` leads any process of this machine to it.
    """

    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    refuse: Callable[[str, str, int], int | None] = lambda method, path, nth: None
    requests: list[tuple[str, str, int | None]] = field(default_factory=list)
    seen: Counter = field(default_factory=Counter)


@contextmanager
def serve_s3() -> Iterator[ObjectStore]:
    # moto takes a second, which tests without an object store need not wait for
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    store = ObjectStore()
    app = DomainDispatcherApplication(create_backend_app)

    def answer(environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        nth = store.seen[method, path]
        store.seen[method, path] += 1
        status = store.refuse(method, path, nth)
        store.requests.append((method, path, status))
        if status is None:
            return app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        code = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}[status]
        start_response(f"{status} {code}", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>planned</Message></Error>".encode()]

    httpd = make_server("127.0.0.1", 0, answer, threaded=True)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{httpd.server_port}"
    store.environment = {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_ACCESS_KEY_ID": "miller",
        "AWS_SECRET_ACCESS_KEY": "grist",
        "AWS_DEFAULT_REGION": "us-east-1",
        # else botocore hides what goes wrong for seconds before anybody hears of it
        "AWS_MAX_ATTEMPTS": "1",
    }
    try:
        yield store
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
