"""The engine of docs/guides/extract-with-a-model.md, which asks a model for the labels of blocks: with a server that
knows the main texts of real pages and answers in the format of MinerU-HTML."""

import json
import os
import re
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.storage import layout, parquet
from tests.conftest import page, write_warc
from tests.corpora import context
from tests.language_model.serving import ROOT
from tools.train_blocks import gold

PAGES = 20
ITEM = re.compile(r'<(\w+) _item_id="(\d+)"[^>]*>(.*?)</\1>', re.DOTALL)


def code() -> str:
    text = (ROOT / "docs" / "guides" / "extract-with-a-model.md").read_text()
    return text.split("`model_engine.py`:\n\n```python\n")[1].partition("```")[0]


def squeezed(text: str) -> str:
    return re.sub(r"\W+", "", text).lower()


@dataclass
class Labeler:
    """Labels blocks whose text is in one of the main texts. `faults`: by a word of the page what goes wrong with it."""

    main: str
    faults: dict[str, str] = field(default_factory=dict)
    paid: Counter = field(default_factory=Counter)
    attempts: Counter = field(default_factory=Counter)
    in_json: bool = False

    def answer(self, body: bytes) -> tuple[int, dict]:
        prompt = json.loads(body)["messages"][0]["content"]
        self.attempts[prompt] += 1
        fault = next((fault for word, fault in self.faults.items() if word in prompt), "")
        if fault == "error" and self.attempts[prompt] == 1:
            return 500, {"error": {"message": "The server had an error."}}
        items = ITEM.findall(prompt.partition("Input HTML:\n")[2])
        labels = {number: "main" if squeezed(unescape(text)) in self.main else "other" for _, number, text in items}
        content = json.dumps(labels) if self.in_json else "".join(f"{n}{label}" for n, label in labels.items())
        if fault == "nonsense":
            content = "The main content is the article."
        if fault == "short":
            content = content[: len(content) // 2]
        self.paid[prompt] += 1
        choice = {"message": {"content": content}, "finish_reason": "length" if fault == "short" else "stop"}
        return 200, {"model": "labeler", "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


@contextmanager
def labeling(labeler: Labeler) -> Iterator[str]:
    """The address of a server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, value = labeler.answer(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The folder with the engine, which this machine allows."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model_engine.py").write_text(code())
    monkeypatch.setenv("GRISTMILL_STEPS", "model_engine")
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path / 'own'}")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    yield tmp_path
    sys.modules.pop("model_engine", None)


def test_blocks_are_labeled_in_both_formats_and_answers_are_kept(engine, monkeypatch):
    import model_engine

    whole = (
        "<html><head><title>t</title><script>x</script></head><body><nav>menu</nav>lead <b>bold</b> on"
        "<div class='a\"b'>One <a href=x>two</a> &lt;three&gt;<p>Four</p> five<ul><li>six<li>seven</ul></div>"
        "<!-- no --><footer>about</footer></body></html>"
    )
    texts = [text for _, _, text in model_engine.blocks_of(whole)]
    assert texts == ["lead bold on", "One two <three>", "Four", "five", "six", "seven", "about"]
    main = squeezed("lead bold on One two three Four six")
    for in_json in (False, True):
        monkeypatch.setenv("GRISTMILL_HOME", str(engine / f"home-{in_json}"))
        with labeling(labeler := Labeler(main, in_json=in_json)) as url:
            monkeypatch.setenv("GRISTMILL_LM__BASE_URL", url)
            for _ in range(2):
                assert model_engine.main_text(whole) == "lead bold on\nOne two <three>\nFour\nsix"
        assert [*labeler.paid.values()] == [1]


def real_pages(folder: Path) -> list[gold.Gold]:
    """Pages of the gold set of news with their main texts."""
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA names no folder with the gold sets")
    source = Path(os.environ["GRISTMILL_TEST_DATA"])
    with tarfile.open(source / "extraction_aeb_181.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return [each for each in gold.read(folder) if each.set == "aeb"][:PAGES]


@pytest.mark.extended
def test_real_pages_with_faults(engine, monkeypatch):
    pages = real_pages(engine)
    own = [page([f"The mill grinds {word} grain."]) for word in ("nonsense", "short", "error")]
    payloads = [*(each.html.encode(errors="replace") for each in pages), *own]
    kinds = [(f"https://mill.example/{n}", p, "200 OK", "text/html; charset=utf-8") for n, p in enumerate(payloads)]
    write_warc(engine / "web.warc.gz", kinds)
    recipe = {
        "name": "labeled",
        "sources": [{"name": "web", "warc": [str(engine / "web.warc.gz")]}],
    }
    faults = {f"grinds {word} grain": word for word in ("nonsense", "short", "error")}
    main = squeezed(" ".join(each.text for each in pages)) + squeezed("The mill grinds error grain.")
    with labeling(labeler := Labeler(main, faults)) as url:
        monkeypatch.setenv("GRISTMILL_LM__BASE_URL", url)
        for limits in ({}, {"page_seconds": 30.0}):
            recipe["steps"] = [{"step": "extract", "engine": "model_engine:main_text", "limits": limits}]
            *_, last = curate(context(str(engine / "home")), load(recipe))
            [documents] = [stage for stage in last.left.stages if stage.name == "documents"]
            assert not documents.reused, "the pages are extracted again"
    asked = [prompt for prompt in labeler.paid if ">Grist to the mill" not in prompt]  # with which an engine is tried
    assert max(labeler.paid.values()) == 1 and len(asked) == PAGES + 3, "each is paid for once"
    found = {}
    for path in Path(documents.folder).glob("part-*.parquet"):
        found |= {row["url"]: row["text"] for row in parquet.read_table(str(path)).to_pylist()}
    texts = [(found.get(f"https://mill.example/{n}", ""), each.text) for n, each in enumerate(pages)]
    score = gold.score("aeb", texts)
    print(f"F1 of words {score.f1:.3f}, precision {score.precision:.3f}, recall {score.recall:.3f}")
    assert score.f1 > 0.9
    assert f"https://mill.example/{PAGES + 2}" in found, "an error of the server is retried"
    assert not {f"https://mill.example/{PAGES + n}" for n in (0, 1)} & set(found)
    ledger = parquet.read_table(layout.ledger_part(documents.folder, 0)).to_pylist()
    errors = [row for row in ledger if row["rule"] == "extractor_error"]
    assert len(errors) == 2 and all("labels, finish" in row["detail"] for row in errors)
