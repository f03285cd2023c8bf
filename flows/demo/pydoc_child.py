"""Render module documentation as pydoc does, in a child process of its own.

Started as a script by `gristmill.flows.demo.modules`, never imported by it: importing foreign modules runs their
code, so this file uses the standard library only and shares nothing with its parent but two pipes.

Standard input holds one JSON request: `modules`, `limit_seconds` and `max_page_bytes`. Standard output carries,
for each module, a frame `begin` and a frame `page` or `lost`, and `end` at last. A frame is one line of JSON with
`size`, then `size` bytes. Prints of the modules are lost.
"""

import importlib
import inspect
import json
import math
import os
import pwd
import pydoc
import re
import resource
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Any

ADDRESS = re.compile(r"(\bat(?:\s|&nbsp;)+)0x[0-9a-fA-F]{6,}")
DOCSTRING = re.compile(r'<span class="code">(.*?)</span>', re.DOTALL)
SOURCE_LINK = re.compile(r'<a href="file:[^"]*">([^<]*)</a>')


class ModuleDoc(pydoc.HTMLDoc):
    """pydoc's own HTML, less four things that do not belong into a corpus.

    Values of data are left out (they hold the environment, addresses and clock times); members that a class
    inherits are left out (they stand on the page of the class that defines them; with them sympy alone is
    300 MB); docstrings stand in <pre> instead of with every blank a no-break space; comments do not stand in
    for missing docstrings (they are copyright lines and linter directives, and cost half the time to find).
    """

    def preformat(self, text: str) -> str:
        return self.escape(text.expandtabs())

    def docother(self, object: Any, name: str | None = None, mod: str | None = None, *ignored: Any) -> str:
        return f"<strong>{name}</strong>" if name else ""

    def docclass(
        self,
        object: object,
        name: str | None = None,
        mod: str | None = None,
        funcs: Mapping[str, str] = {},  # noqa: B006 (pydoc's own)
        classes: Mapping[str, str] = {},  # noqa: B006 (pydoc's own)
        *ignored: Any,
    ) -> str:
        every = pydoc.classify_class_attrs
        # pydoc gives the class by position
        pydoc.classify_class_attrs = lambda cls: [a for a in every(cls) if a[2] is object]  # type: ignore[assignment]
        try:
            return super().docclass(object, name, mod, funcs, classes)
        finally:
            pydoc.classify_class_attrs = every


def machine_paths() -> re.Pattern[str]:
    """The folders that this interpreter knows, a slash behind them included; not as part of a longer name.

    The longest come first, so that they go at once. Folders right below the root ("/usr", "/tmp") name no
    machine, and without them the text would be maimed.
    """
    folders = {os.environ["HOME"], sys.prefix, sys.base_prefix, *sys.path}
    try:
        folders.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass  # containers run users that no file names
    folders |= {os.path.realpath(folder) for folder in folders}
    named = sorted((f for f in folders if f.strip("/").count("/")), key=lambda f: (-len(f), f))
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, named))})(?![\w-])/?")


def scrubbed(page: str, paths: re.Pattern[str]) -> str:
    """The page without addresses and paths: they differ from run to run and between machines."""
    page = SOURCE_LINK.sub(r"\1", page)
    return ADDRESS.sub(r"\1...", paths.sub("", page))


def main() -> None:
    request = json.load(sys.stdin)
    pages = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.argv = ["pydoc"]
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def send(event: str, module: str, payload: bytes = b"") -> None:
        header = {"event": event, "module": module, "size": len(payload)}
        pages.write(json.dumps(header).encode() + b"\n" + payload)
        pages.flush()

    inspect.getcomments = lambda object: None
    renderer = ModuleDoc()
    paths = machine_paths()
    # The parent keeps the time limit. This one outlives it, for the day the parent itself is killed.
    grace = math.ceil(request["limit_seconds"]) + 5
    for name in request["modules"]:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(grace)
        send("begin", name)
        try:
            module = importlib.import_module(name)
            html = renderer.page(name, renderer.document(module, name))
            html = DOCSTRING.sub(r"<pre>\1</pre>", html)
            page = scrubbed(html, paths).encode("utf-8", "replace")
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a module are that module's own
            reason = f"{type(error).__name__}: {error}".strip(": ").splitlines()[0][:200]
            send("lost", name, scrubbed(reason, paths).encode("utf-8", "replace"))
            continue
        if len(page) > request["max_page_bytes"]:
            send("lost", name, f"longer than {request['max_page_bytes']} bytes".encode())
        else:
            send("page", name, page)
    send("end", "")
    # Threads and exit handlers of the imported modules are not run any more.
    os._exit(0)


if __name__ == "__main__":
    main()
