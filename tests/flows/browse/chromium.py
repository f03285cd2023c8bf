"""Chromium, driven by its own protocol: real clicks and keys, what it asked for, what its console says, pictures."""

import base64
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--no-proxy-server", "--disable-sync", "--remote-debugging-port=0")  # fmt: skip


class Tab:
    """One page. `asked`: addresses of all requests; `said`: messages of the console, refusals by the policy among them;
    `clicks`: so many were made."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self.asked: list[str] = []
        self.said: list[str] = []
        self.dialogs: list[str] = []
        self.clicks = 0
        for domain in ("Page", "Log", "Runtime", "Network"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **given: Any) -> dict:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": given}))
        while True:
            got = json.loads(self._socket.recv(timeout=60))
            self._note(got.get("method", ""), got.get("params", {}))
            if got.get("id") == self._number:
                return got.get("result", {})

    def _note(self, method: str, given: dict) -> None:
        if method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])
        if method in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.said.append(json.dumps(given))
        if method == "Page.javascriptDialogOpening":
            self.dialogs.append(given["message"])
            self._socket.send(
                json.dumps({"id": 10**9, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}})
            )

    def screen(self, width: int, height: int = 900, scheme: str = "light") -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address: str) -> None:
        self._call("Page.navigate", url=address)
        self.settle()

    def value(self, expression: str) -> Any:
        """What an expression is on the page; promises are waited for."""
        found = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return found.get("result", {}).get("value")

    def settle(self) -> None:
        """Wait until the page is there, and what it has asked for."""
        for _ in range(600):
            time.sleep(0.05)
            if self.value("document.readyState === 'complete' && !document.querySelector('.busy')"):
                return
        raise TimeoutError("the page does not exist")

    def wait(self, expression: str) -> None:
        for _ in range(600):
            if self.value(expression):
                return
            time.sleep(0.05)
        raise TimeoutError(expression)

    def click(self, selector: str, at: float = 0.5) -> None:
        """A click of the mouse on the first such element, `at` so far from its left; nothing may be in front of it."""
        quoted = json.dumps(selector)
        place = self.value(
            f"(() => {{ const e = document.querySelector({quoted}); e.scrollIntoView({{block: 'center'}});"
            f"const r = e.getClientRects()[0]; const x = r.left + r.width * {at}, y = r.top + r.height / 2;"
            "const top = document.elementFromPoint(x, y); return [x, y, e === top || e.contains(top)]; })()"
        )
        assert place and place[2], f"{selector} cannot be clicked"
        self.clicks += 1
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.settle()

    def type(self, selector: str, text: str) -> None:
        self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = ''; e.focus(); }})()"
        )
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **text)
        self.settle()

    def picture(self, path: str | Path, whole: bool = False) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))


class Elsewhere(ThreadingHTTPServer):
    """A server of this machine that a browser takes for all others; `asked`: hosts, paths and referrers of all
    requests, but for those of `/page`, which is empty and has no policy."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []


class _Answer(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        own = b"<!doctype html><main></main>" if self.path == "/page" else b""
        if not own:
            referrer = self.headers.get("Referer")
            self.server.asked.append(f"{self.headers['Host']}{self.path}" + (f" from {referrer}" if referrer else ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(own)))
        self.end_headers()
        self.wfile.write(own)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def chromium(others: Elsewhere | None = None) -> Iterator[Tab]:
    """A tab of a browser of its own, with a folder of its own that is removed. `others`: what it finds under every name
    of a host but the loopback's."""
    hosts = f"MAP *.example 127.0.0.1:{others.server_address[1]}" if others else ""
    assert PROGRAM is not None
    folder = tempfile.mkdtemp()
    child = subprocess.Popen(
        [PROGRAM, *_QUIET, f"--host-resolver-rules={hosts}", f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        line = next(line for line in child.stderr if "DevTools listening on" in line)
        port = line.split("127.0.0.1:")[1].split("/")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=60) as answer:
            address = next(each["webSocketDebuggerUrl"] for each in json.load(answer) if each["type"] == "page")
        with connect(address, max_size=None) as socket:
            yield Tab(socket)
    finally:
        child.terminate()
        child.communicate()
        shutil.rmtree(folder, ignore_errors=True)
