"""The dedup report: what stands on it, and that no text of a document can be more than text."""

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lxml import etree, html

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports import near_duplicates
from gristmill.flows.stages.dedup.near_duplicates import minhash
from gristmill.storage import parquet
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.engine.make import NotFinishedError
from tests.corpora import Texts, context, fresh, ledger, planted_stage

EVIL = "<script>alert(1)</script> & \"d\" 's' <img src=x onerror=alert()> </td></table><svg onload=a()> \x00\x1b"
SETTINGS = MinHash(threshold=0.7, partitions=3)


def planted() -> list[list[dict]]:
    """Pairs of many similarities, two families, a copy, evil in every place where there may be text."""
    rng = np.random.default_rng(4)
    texts = []
    for share in np.repeat(np.arange(20, 100, 4), 12):
        common = fresh(rng, share)
        texts += [" ".join(common + fresh(rng, 100 - share)) for _ in range(2)]
    for _ in range(2):
        template = fresh(rng, 97)
        texts += [" ".join([*template, *fresh(rng, 3)]) for _ in range(9)]
    texts.append(texts[-1].upper())
    body = fresh(rng, 60)
    texts += [f"{EVIL} {' '.join(body)} {word} {EVIL}" for word in ("one", "two")]
    documents = [{"id": f"d{i:04d}", "title": f"Title {i}", "text": text} for i, text in enumerate(texts)]
    for number, document in enumerate(documents[-2:]):
        document |= {"id": f"evil {number} {EVIL}", "url": f"https://x.example/{EVIL}", "title": EVIL}
    return [documents[i::3] for i in range(3)]


def removed(home: Path, shards: list[list[dict]], settings: MinHash = SETTINGS, crawl: str = "texts"):
    texts = Texts(shards)
    return minhash(context(str(home)), texts.recipe, texts.corpus(str(home), crawl), settings)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return removed(tmp_path_factory.mktemp("home"), planted())


def written(name: str, settings: MinHash, kept) -> str:
    return near_duplicates.page(near_duplicates.Removal(name, settings, kept))


@pytest.fixture(scope="module")
def page(corpus) -> str:
    return written(f"planted {EVIL}", SETTINGS, corpus.kept)


class Parsed(HTMLParser):
    """Tags and attributes as Python's own parser has them, and whether every tag is closed that must be."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        # the end of these may be left out
        while self.open[-1] != tag and self.open[-1] in ("td", "th", "tr", "p", "meta", "br"):
            self.open.pop()
        assert self.open.pop() == tag


@pytest.mark.extended
def test_nothing_of_a_document_is_markup(page):
    parsed = Parsed(page)
    assert parsed.open == []
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "a", "image"}
    for _, given in parsed.tags:
        assert not [name for name in given if name.startswith("on") or name in ("src", "href", "srcdoc", "action")]
        assert not [value for name, value in given.items() if name == "xlink:href" and not value.startswith("#")]
    [policy] = [given["content"] for tag, given in parsed.tags if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script" not in policy
    assert "<script" not in page and "url(" not in page.replace("url(#", "") and "@import" not in page
    assert not [code for code in map(ord, page) if code < 0x20 and code != 0x0A]
    document = html.fromstring(page)
    shown = " ".join(document.itertext())
    assert (
        shown.count("<script>alert(1)</script>") >= 2 + 2 + 1 + 4
    )  # heads, ids, the recipe's name, both ends of texts
    assert "\u2400\u241b" in shown


def test_plots_refer_to_nothing_and_have_no_style(page):
    tags = Parsed(page).tags
    ids = [given["id"] for _, given in tags if "id" in given]
    assert len(ids) == len(set(ids)) and page.count('class="plot"') == 2
    assert not [given for _, given in tags if {"style", "xlink:href", "clip-path"} & set(given)]


@pytest.mark.extended
def test_the_same_stage_gives_the_same_bytes_wherever_it_lies(tmp_path, corpus, page):
    shutil.copytree(Path(corpus.kept.folder).parents[1], tmp_path / "moved")
    program = (
        "import sys; from pathlib import Path;"
        "from tests.flows.reports.test_near_duplicates import EVIL, SETTINGS, planted, removed, written;"
        "kept = removed(Path(sys.argv[1]), planted()).kept; assert kept.reused;"
        "sys.stdout.buffer.write(written(f'planted {EVIL}', SETTINGS, kept).encode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", program, str(tmp_path / "moved")]
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout == page.encode()


def cells(page: str) -> dict[str, list[str]]:
    """The rows of the page's tables by their heads."""
    rows = html.fromstring(page).xpath("//table[not(@class)]//tr")
    texts = [["".join(cell.itertext()).strip() for cell in row.xpath("th|td")] for row in rows]
    return {text[0]: text[1:] for text in texts if text}


def test_the_numbers_are_those_of_the_stage(corpus, page):
    rows = cells(page)
    losses = ledger(corpus.kept, corpus.places.shards())
    total = sum(map(len, planted()))
    gone = len(losses)
    assert rows["documents that reached the step"][0] == f"{total}"
    assert rows["dropped as near-duplicates"] == [f"{gone}", f"{gone / total:.2%}"]
    assert rows["documents kept"] == [f"{total - gone}", f"{(total - gone) / total:.2%}"]
    assert rows["threshold"] == ["0.7"] and rows["unit"] == ["words"]
    expected = s_curve(16, 8, 0.7)
    assert f"{100 * expected:.2f}%" in "".join(html.fromstring(page).xpath("//strong/text()"))
    kept_for = losses["representative"].to_pylist()
    clustered = gone + len(set(kept_for))
    [label] = [name for name in rows if name.startswith("documents in clusters")]
    assert rows[label] == [f"{clustered}", f"{clustered / total:.2%}"]
    listed = html.fromstring(page).xpath("//table[@class='largest']//tr[td]/td[1]/text()")
    sizes = sorted((1 + kept_for.count(one) for one in set(kept_for)), reverse=True)
    assert [int(size) for size in listed] == sizes[:20]
    pairs = html.fromstring(page).xpath("//table[@class='pair']")
    assert len(pairs) > 60
    assert any("one was dropped" in caption for caption in (pair.findtext("caption") for pair in pairs))


def test_a_cluster_has_title_date_source_and_tokens(tmp_path):
    rng = np.random.default_rng(1)
    facts = [
        {"title": "The first", "date": "2024-02-03T04:05:06Z", "published": "2019-08-07"},
        {"title": None, "date": "2024-02-03T04:05:06Z", "published": None},
        {},
    ]
    shards = []
    for name in ("a", "b"):
        words = fresh(rng, 100)
        shards.append([{"id": f"{name}{at}", "text": " ".join(words[at:]), **facts[at]} for at in range(3)])
    for at, shard in enumerate(shards):
        shard[at]["text"] += " longest " * 3  # of each family this one is kept
    left = removed(tmp_path, shards, SETTINGS.model_copy(update={"keep": ("longest",)}))
    rows = html.fromstring(written("few", SETTINGS, left.kept)).xpath("//table[@class='largest']//tr")
    [head, *found] = [[cell.text_content().strip() for cell in row.xpath("th|td")] for row in rows]
    assert head[:5] == ["documents", "title", "date", "source", "tokens"]
    tokens = [f"~{round(len(shard[at]['text']) / 4):,}" for at, shard in enumerate(shards)]
    assert [row[:5] for row in found] == [
        ["3", "The first", "2019-08-07", "web", tokens[0]],
        ["3", "", "2024-02-03", "web", tokens[1]],
    ]
    assert [row[5].endswith(name) for row, name in zip(found, ("a0", "b1"), strict=True)] == [True, True]

    # where documents are trained on their tokens are known
    trained = planted_stage("tokens", str(tmp_path / "tokens"))
    index = pa.table({"id": ["a0", "other"], "offset": [0, 777], "length": pa.array([777, 5], pa.int32())})
    parquet.write_table(f"{trained.folder}/train-00000.parquet", index)
    parquet.write_table(f"{trained.folder}/train-00001.parquet", index.slice(1))
    largest = near_duplicates.overview(SETTINGS, left.kept, 1, trained, 2.0).largest
    assert [(one.tokens, one.estimated) for one in largest] == [
        (777, False),
        (round(len(shards[1][1]["text"]) / 2), True),
    ]


def test_without_a_threshold_the_page_states_what_is_not_known(tmp_path):
    settings = SETTINGS.model_copy(update={"threshold": None})
    left = removed(tmp_path, planted(), settings)
    page = written("components", settings, left.kept)
    assert Parsed(page).open == []
    rows, losses = cells(page), ledger(left.kept, left.places.shards())
    assert rows["dropped as near-duplicates"][0] == f"{len(losses)}" and rows["threshold"] == ["null"]
    assert "Documents were not compared." in page and "their similarity is unknown" in page
    assert not [name for name in rows if "left_out" in name] and not html.fromstring(page).xpath(
        "//table[@class='pair']"
    )
    text = "".join(html.fromstring(page).itertext())
    assert "At the threshold" not in text and "nan" not in text and "hold-outs" in text
    shown = near_duplicates.overview(settings, left.kept, 3)
    assert shown.pairs == [] and shown.clusters.in_decile.sum() == 0
    kept_for = losses["representative"].to_pylist()
    assert shown.clusters.counts.sum() == len(set(kept_for))
    assert shown.clusters.documents == len(losses) + len(set(kept_for))


@pytest.mark.parametrize(
    ("documents", "label"),
    [
        ([], "No document reached this step"),
        ([{"id": "a", "text": "one text"}, {"id": "b", "text": "of other words"}], "No document was dropped"),
    ],
)
def test_a_corpus_without_duplicates_has_a_page_that_states_it(tmp_path, documents, label):
    page = written("small", SETTINGS, removed(tmp_path, [documents, []]).kept)
    assert Parsed(page).open == []
    assert label in page
    assert "There are no clusters" in page and "there is nothing to measure" in page
    assert "nan" not in "".join(html.fromstring(page).itertext())


def named(crawl: str) -> list[list[dict]]:
    """The planted documents but the evil ones, with ids that can be nothing else, which stand in their texts, too."""
    return [
        [
            document | {"id": (name := f"{crawl}-{document['id']}-{crawl}"), "text": f"{name} {document['text']}"}
            for document in shard
            if "text" in document and EVIL not in document["text"]
        ]
        for shard in planted()
    ]


@pytest.mark.extended
def test_what_was_taken_down_is_nowhere_on_the_page(tmp_path):
    first, second = named("one"), named("two")
    taken = {crawl: [d["id"] for shard in found for d in shard][::3] for crawl, found in (("1", first), ("2", second))}
    lists = {}
    for crawl, ids in taken.items():
        lists[crawl] = tmp_path / crawl
        lists[crawl].write_text("".join(f"{name}\n" for name in ids))
    plain = removed(tmp_path, first, SETTINGS, "one")
    page = written("all", SETTINGS, plain.kept)
    assert sum(name in page for name in taken["1"]) > 30

    settings = SETTINGS.model_copy(update={"takedowns": (str(lists["1"]),)})
    before = removed(tmp_path, first, settings, "one")
    page = written("first", settings, before.kept)
    shown = [d["id"] for shard in first for d in shard if d["id"] in page]
    assert len(shown) > 60 and not set(shown) & set(taken["1"])

    # a later crawl has its own list
    settings = SETTINGS.model_copy(update={"takedowns": (str(lists["2"]),), "earlier": (before.kept.folder,)})
    page = written("second", settings, removed(tmp_path, second, settings, "two").kept)
    shown = [d["id"] for shard in (*first, *second) for d in shard if d["id"] in page]
    assert any(name.startswith("one") for name in shown) and any(name.startswith("two") for name in shown)
    assert not set(shown) & {*taken["1"], *taken["2"]}


@pytest.mark.extended
def test_the_command_writes_the_page_beside_the_stages(undisturbed, recipe, runs):
    """It starts neither Prefect nor MLflow, changes no stage, and makes those of the lost text alone."""
    home = runs.home("duplicates")
    shutil.copytree(undisturbed.home("undisturbed") / "stages", home / "stages")
    [kept] = home.glob("stages/near_duplicates-*")
    before = {path: path.stat().st_mtime_ns for path in home.glob("stages/**/*")}
    program = (
        "import sys; from gristmill.flows.cli import app; app(sys.argv[1:], standalone_mode=False);"
        "print('loaded', [name for name in ('prefect', 'mlflow', 'torch', 'distributed') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "explain", "duplicates", str(runs.write(recipe))]
    environment = runs.environment("duplicates") | {"GRISTMILL_HOME": str(home)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    path, loaded, _ = finished.stdout.split("\n")
    assert loaded == "loaded []"
    written = home / "reports" / f"{kept.name}.html"
    assert Path(path) == written
    after = {path: path.stat().st_mtime_ns for path in home.glob("stages/**/*") if "lost_text" not in f"{path}"}
    assert after == before
    page = written.read_text()
    assert Parsed(page).open == [] and "one was dropped for the" in page and "https://near.example/" in page

    steps = [step | {"threshold": 0.5} if step["step"] == "minhash" else step for step in recipe["steps"]]
    with pytest.raises(NotFinishedError, match="run `gristmill run RECIPE`"):
        near_duplicates.write(recipe | {"steps": steps}, MachineSettings(home=str(home)))
    with pytest.raises(ValueError, match="no step `minhash`"):
        near_duplicates.write(recipe | {"steps": [{"step": "extract"}]}, MachineSettings(home=str(home)))


def test_the_plots_are_well_formed(page):
    for plot in page.split("<svg")[1:]:
        etree.fromstring(f"<svg{plot.split('</svg>')[0]}</svg>")
