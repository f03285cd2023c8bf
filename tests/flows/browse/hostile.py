"""A finished corpus of hostile documents, and requests to its pages."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np

from gristmill.flows.curation import curate
from gristmill.flows.explore.browse.opened import Opened, open_recipe
from gristmill.flows.explore.browse.server import Server
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from tests.corpora import context
from tests.flows.reports.test_near_duplicates import EVIL

HOSTILE = {
    "markup": EVIL.replace("\x00", ""),
    "end": "</div></main></body></html><script>alert(2)</script>",
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//x.example/>",
    "rtl": "\u202egnp.exe \u2066 \u05d0\u05d1 \u202d",
    "control": "\x1b[2J\x07\x08 \x7f \ufeff",
    "template": "{{ 7 * 7 }} {% raw %} ${x} &lt;b&gt;",
    "long": "x" * 60_000,
}
STEP = {
    "step": "gopher_quality", "min_words": 12, "min_stop_words": 0, "min_mean_word_length": 1,
    "max_mean_word_length": None, "min_alpha_words": 0.3,
}  # fmt: skip


def rows() -> Iterator[dict]:
    rng = np.random.default_rng(11)
    hostile = list(HOSTILE.items())
    for number in range(240):
        name, evil = hostile[number % len(hostile)]
        words = ["".join(map(chr, rng.integers(97, 123, 6).tolist())) for _ in range(int(rng.integers(4, 40)))]
        if number % 2:
            words.insert(1, evil)
        if number % 60 == 7:
            words = []
        yield {
            "id": f"{name}-{number}",
            "url": f"https://h{number % 5}.example/{quote(evil[:40])}",
            "text": " ".join(words),
        }


def finish(folder: Path, lines: list[str], name: str, steps: list[dict], **source: object) -> Opened:
    """Curate lines of JSON in three shards, without an orchestrator."""
    for number in range(3):
        (folder / f"pages-{number}.jsonl").write_text("\n".join(lines[number::3]))
    given = {
        "name": name,
        "sources": [
            {
                "name": "web",
                "jsonl": [str(folder / "pages-*.jsonl")],
                "shard_bytes": 1,
                "url_column": "url",
                "id_column": "id",
            }
            | source
        ],
        "steps": [{"step": "extract"}, *steps],
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(given))
    home = str(folder / "home")
    for _ in curate(context(home), load(str(path))):
        pass
    return open_recipe(str(path), MachineSettings(home=home))


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    """A request of raw bytes: no client puts the address or the headers in order."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, content


def page(server: Server, name: str = "", **query: object) -> str:
    status, _, content = ask(server, f"/{server.token}/{name}{'?' if query else ''}{urlencode(query)}")
    assert status == 200, content
    return content


def key(opened: Opened) -> str:
    return next(step.key for step in opened.steps if step.row.step == "gopher_quality")


def recorded(opened: Opened) -> dict[str, int]:
    return next(step.drops for step in opened.steps if step.row.step == "gopher_quality")
