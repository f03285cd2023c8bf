"""The step `rights` on a crawl: what pages state, what files of sites state, and a list that arrives later."""

import io
import json
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from gristmill.flows.curation import Outputs, curate
from gristmill.flows.machine import runs
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.storage import layout, parquet
from gristmill.storage.token_shards import SPLIT, bin_path
from gristmill.tasks.rights.shards import SitePolicy, keep_permitted
from gristmill.tasks.rights.sites import write_sites
from gristmill.tasks.url.step import Url
from tests import corpora

HEADERS = {
    "a.example/header": [("X-Robots-Tag", "noai")],
    "a.example/other": [("X-Robots-Tag", "otherbot: noai")],
    "b.example/tdm": [("tdm-reservation", "1")],
    "b.example/free": [("tdm-reservation", "0")],
    "c.example/usage": [("Content-Usage", "train-ai=n")],
}
HEADS = {
    "a.example/meta": '<meta name="robots" content="index, noai">',
    "d.example/license": '<link rel="license" href="https://creativecommons.org/licenses/by-nc/4.0/">',
    "d.example/open": '<link rel="license" href="https://creativecommons.org/licenses/by/4.0/">',
}
PLAIN = [f"{host}.example/{n}" for host in "ef" for n in range(6)]
PAGES = [*HEADERS, *HEADS, *PLAIN]


def write(path: Path, answers: list[tuple[str, str, list, bytes]]) -> None:
    """Answers are (URL, status line, header fields, payload)."""
    with open(path, "wb") as f:
        writer = WARCWriter(f, gzip=True, warc_version="WARC/1.1")
        for number, (url, status, fields, payload) in enumerate(answers):
            given = {"WARC-Date": f"2026-01-01T00:00:{number:02d}Z", "WARC-Record-ID": f"<urn:uuid:{number:032x}>"}
            head = StatusAndHeaders(status, fields, protocol="HTTP/1.1")
            writer.write_record(
                writer.create_warc_record(
                    url, "response", io.BytesIO(payload), http_headers=head, warc_headers_dict=given
                )
            )


def text(name: str) -> str:
    return " ".join(f"The page {name} has sentence number {i} about the mill." for i in range(8))


@pytest.fixture
def crawl(tmp_path) -> Path:
    """A file for each host, so that each is a shard."""
    for host in sorted({name.partition(".")[0] for name in PAGES}):
        answers = []
        for name in (name for name in PAGES if name.startswith(f"{host}.")):
            page = f"<html><head><title>t</title>{HEADS.get(name, '')}</head><body><p>{text(name)}</p></body></html>"
            fields = [("Content-Type", "text/html"), *HEADERS.get(name, [])]
            answers.append((f"https://{name}", "200 OK", fields, page.encode()))
        write(tmp_path / f"{host}.warc.gz", answers)
    return tmp_path


def recipe(folder: Path, **rights) -> dict:
    steps = [{"step": "extract", "rights": True, "engine": "plain"}, {"step": "rights", **rights}]
    source = {"name": "web", "warc": [f"{folder}/*.warc.gz"], "shard_bytes": 1}
    return {"name": "rights", "sources": [source], "steps": steps}


def curated(folder: Path, home: Path, given: dict):
    *_, last = curate(corpora.context(str(home)), load(given))
    return last.left


def kept(corpus) -> set[str]:
    urls = {}
    for shard in range(len(corpus.sources)):
        for row in parquet.read_table(corpus.documents.part(shard), ["id", "url"]).to_pylist():
            urls[row["id"]] = row["url"].removeprefix("https://")
    ids = [
        id_
        for shard in range(len(corpus.sources))
        for id_ in parquet.read_table(corpus.kept.part(shard), ["id"])["id"].to_pylist()
    ]
    return {urls[id_] for id_ in ids}


def ledger(corpus, *steps: str) -> dict[str, tuple[str, str]]:
    """(rule, detail) by URL of all documents that stages have dropped by some steps."""
    urls, rows = {}, []
    for shard in range(len(corpus.sources)):
        for row in parquet.read_table(corpus.documents.part(shard), ["id", "url"]).to_pylist():
            urls[row["id"]] = row["url"].removeprefix("https://")
        for stage in corpus.stages:
            if stage.step_counts:
                rows += parquet.read_table(layout.ledger_part(stage.folder, shard)).to_pylist()
    return {urls[row["id"]]: (row["rule"], row["detail"]) for row in rows if row["step"] in steps}


def test_pages_are_dropped_by_what_they_state(crawl, tmp_path):
    given = recipe(crawl, protocols=["robots_tag", "tdm", "content_usage"], drop_licenses=["CC-BY-NC"])
    corpus = curated(crawl, tmp_path / "home", given)
    assert ledger(corpus, "rights") == {
        "a.example/header": ("robots_tag", "*: noai in header"),
        "a.example/meta": ("robots_tag", "*: noai in meta"),
        "b.example/tdm": ("tdm", "*: tdm-reservation: 1 in header"),
        "c.example/usage": ("content_usage", "*: train-ai=n in header"),
        "d.example/license": ("license", "rights_license_scope = page, rights_license = CC-BY-NC-4.0"),
    }
    assert kept(corpus) == {*PLAIN, "a.example/other", "b.example/free", "d.example/open"}


@pytest.mark.parametrize("listed", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example:443/robots.txt"])
def test_lists_name_hosts_of_other_alphabets_in_any_spelling(listed, tmp_path):
    urls = {"1": "https://bücher.example/a", "2": "http://xn--bcher-kva.example:80/a", "3": "https://bucher.example/a"}
    corpus = corpora.Texts([[{"id": id_, "url": url, "text": "a"} for id_, url in urls.items()]]).corpus(str(tmp_path))
    table = site_list(tmp_path / "robots.jsonl", **{listed: "User-agent: *\nDisallow: /\n"})
    write_sites(str(tmp_path), 0, [("robots", table, "robots.jsonl")])
    (tmp_path / "hosts.txt").write_text(f"{listed.partition(':')[0]}\n")
    for protocols, lists, rule in (("robots",), (), "robots"), ((), (str(tmp_path / "hosts.txt"),), "hosts"):
        policy = SitePolicy(
            agents=("CCBot",),
            protocols=protocols,
            hosts=Url(takedowns=lists).pinned(),
            drops_silence=False,
            reads_pages=False,
        )
        out = str(tmp_path / rule)
        part = corpus.documents.part(0)
        keep_permitted(out, 0, part, corpus.kept.part(0), part, layout.part(str(tmp_path), 0), policy)
        dropped = parquet.read_table(layout.ledger_part(out, 0)).to_pylist()
        assert {(row["id"], row["rule"]) for row in dropped} == {("1", rule), ("2", rule)}


@pytest.mark.extended
def test_silence_may_drop_all_that_nobody_has_permitted(crawl, tmp_path):
    given = recipe(crawl, silence="drop", protocols=["robots_tag", "tdm"])
    assert kept(curated(crawl, tmp_path / "home", given)) == {"b.example/free", "d.example/open", "d.example/license"}


def site_list(path: Path, **texts: str) -> str:
    path.write_text("".join(json.dumps({"host": host, "text": each}) + "\n" for host, each in texts.items()))
    return str(path)


def test_files_of_sites_are_applied_after_all_steps(crawl, tmp_path):
    robots = site_list(
        tmp_path / "robots.jsonl",
        **{
            "e.example": "User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /1\n\nUser-agent: *\nDisallow: /2\n",
            "f.example": "User-agent: *\nContent-Usage: /3 train-ai=n\n",
        },
    )
    rules = json.dumps([{"location": "/free", "tdm-reservation": 1}, {"location": "/4", "tdm-reservation": 1}])
    tdmrep = site_list(tmp_path / "tdmrep.jsonl", **{"b.example": rules, "f.example": rules})
    (tmp_path / "hosts.txt").write_text("https://f.example/5\n")
    given = recipe(crawl, robots=[robots], tdmrep=[tdmrep], hosts=[str(tmp_path / "hosts.txt")])
    corpus = curated(crawl, tmp_path / "home", given)
    assert ledger(corpus, "site_rights") == {
        "e.example/1": ("robots", "CCBot, GPTBot: line 3: Disallow: /1"),
        "e.example/2": ("robots", "*: line 6: Disallow: /2"),
        "f.example/3": ("content_usage", "*: line 2: Content-Usage: /3 train-ai=n"),
        "f.example/4": ("tdm", "*: rule 2 of tdmrep.json"),
        "f.example/5": ("hosts", "*: hosts.txt: f.example/5"),
    }
    assert "b.example/free" in kept(corpus)  # what the page states supersedes the file


@pytest.mark.extended
def test_robots_files_of_a_crawl(crawl, tmp_path):
    lists = tmp_path / "lists"
    lists.mkdir()
    plain = [("Content-Type", "text/plain")]
    write(
        lists / "robots.warc.gz",
        [
            ("https://e.example/robots.txt", "301 Moved", [("Location", "https://www.e.example/r.txt")], b""),
            ("https://www.e.example/r.txt", "200 OK", plain, b"User-agent: *\nDisallow: /1\n"),
            ("https://b.example/robots.txt", "301 Moved", [("Location", "/robots.txt")], b""),  # without an end
            ("https://a.example/robots.txt", "503 Busy", plain, b"User-agent: *\nDisallow: /\n"),
            ("https://d.example/robots.txt", "200 OK", plain, b"User-agent: *\nDisallow: /\n"),
            ("https://d.example/robots.txt", "404 Not Found", plain, b"User-agent: *\nDisallow: /\n"),  # the newer
            ("https://f.example/robots.txt", "200 OK", plain, b"User-agent: *\nDisallow: /2\n"),
            ("https://f.example/robots.txt", "503 Busy", plain, b""),  # says nothing about the file
            ("http://f.example/robots.txt", "429 Slow down", plain, b""),
        ],
    )
    given = recipe(crawl, protocols=["robots"], robots=[str(lists / "robots.warc.gz")])
    corpus = curated(crawl, tmp_path / "home", given)
    assert ledger(corpus, "site_rights") == {
        "e.example/1": ("robots", "*: line 2: Disallow: /1"),
        "f.example/2": ("robots", "*: line 2: Disallow: /2"),
    }


@pytest.mark.extended
@pytest.mark.parametrize("last", ["a", "z"])
def test_of_several_lists_with_a_host_the_last_in_the_recipe_counts(crawl, tmp_path, last):
    paths = {
        name: site_list(tmp_path / f"{name}.jsonl", **{"e.example": f"User-agent: *\nDisallow: /{number}\n"})
        for number, name in ((1, "a"), (2, "z"))
    }
    order = sorted(paths, key=lambda name: name == last)
    given = recipe(crawl, protocols=["robots"], robots=[paths[name] for name in order])
    corpus = curated(crawl, tmp_path / "home", given)
    number = 1 if last == "a" else 2
    assert ledger(corpus, "site_rights") == {f"e.example/{number}": ("robots", f"*: line 2: Disallow: /{number}")}


def test_a_recipe_without_rights_keeps_its_stages(crawl, tmp_path):
    plain = recipe(crawl)
    plain["steps"] = [{"step": "extract", "engine": "plain"}, {"step": "where", "keep": "characters > 1"}]
    first = curated(crawl, tmp_path / "home", plain)
    columns = parquet.columns(first.documents.part(0))
    assert not [name for name in columns if name.startswith("rights")]
    assert "rights" not in json.dumps(first.documents.manifest["record"])
    # robots.txt alone needs nothing of the pages
    plain["steps"].append(
        {"step": "rights", "protocols": ["robots"], "robots": [site_list(tmp_path / "r.jsonl", **{"e.example": ""})]}
    )
    assert curated(crawl, tmp_path / "home", plain).extracted.label == first.extracted.label


def test_the_missing_setting_is_named(crawl):
    given = recipe(crawl)
    given["steps"][0].pop("rights")
    with pytest.raises(RecipeError, match="add `rights: true` to the step `extract`"):
        load(given)


MIXTURE = {"weights": {"web": 1}, "heldout_fraction": 0.3}


def outputs(home: Path, given: dict) -> Outputs:
    small = {
        "tokenizer": {"vocab_size": 320},
        "model": {"seq_len": 64},
        "training": {"steps": 2, "batch": 2, "warmup_steps": 1},
    }
    made = Outputs(corpora.context(str(home)), load({**given, "mixture": MIXTURE, **small}))
    made.make("tokens")
    return made


def tokens_of(stage, shard: int) -> bytes:
    return Path(bin_path(stage.folder, SPLIT, shard)).read_bytes()


@pytest.mark.extended
def test_a_newer_list_makes_only_the_shards_again_that_it_hits(crawl, tmp_path):
    home = tmp_path / "home"
    robots = tmp_path / "robots.jsonl"
    site_list(robots, **{"f.example": "User-agent: *\nDisallow: /nowhere\n"})
    given = recipe(crawl, protocols=["robots"], robots=[str(robots)])
    before = outputs(home, given)
    site_list(robots, **{"f.example": "User-agent: *\nDisallow: /\n"})
    after = outputs(home, given)
    first, second = before.data, after.data
    assert first.tokenizer.label == second.tokenizer.label and first.tokens.label != second.tokens.label
    assert before.corpus.extracted.label == after.corpus.extracted.label
    same = [tokens_of(first.tokens, i) == tokens_of(second.tokens, i) for i in range(len(after.corpus.sources))]
    assert same == [True] * (len(same) - 1) + [False]  # f.example has the last shard
    assert after.corpus.rows == before.corpus.rows - 6


@pytest.mark.extended
def test_a_run_with_a_newer_list_releases_the_runs_before_it(crawl, tmp_path):
    home, robots = tmp_path / "home", tmp_path / "robots.jsonl"
    given = recipe(crawl, protocols=["robots"], robots=[str(robots)])
    recorded = []
    for text in ("", "User-agent: *\nDisallow: /1\n"):
        site_list(robots, **{"f.example": text})
        corpus = curated(crawl, home, given)
        recorder = runs.RunRecorder(str(home), "rights", flow="corpus", recipe={"text": text})
        recorder.add(*(stage.label for stage in corpus.stages))
        recorder.finished()
        recorded.append(tuple(stage.label for stage in corpus.stages))
    assert [run.stages for run in runs.runs_of(str(home), "rights")] == recorded[1:]


def test_lists_of_a_step_apply_to_its_sources(crawl, tmp_path):
    """Two steps with lists of their own, each for a source; a third source has none."""
    for name in "ef":
        (tmp_path / f"{name}.txt").write_text("e.example\nf.example\n" if name == "e" else "f.example/0\n")
    sources = [{"name": name, "warc": [f"{crawl}/{name}.warc.gz"]} for name in "aef"]
    steps = [
        {"step": "extract", "rights": True, "engine": "plain"},
        {"step": "rights", "only": ["e"], "hosts": [str(tmp_path / "e.txt")]},
        {"step": "rights-2", "only": ["f"], "hosts": [str(tmp_path / "f.txt")]},
    ]
    corpus = curated(crawl, tmp_path / "home", {"name": "rights", "sources": sources, "steps": steps})
    left = kept(corpus)
    assert not any(name.startswith("e.") for name in left)
    assert {name for name in PAGES if name.startswith("f.")} - left == {"f.example/0"}
    assert {name for name in PAGES if name.startswith("a.")} <= left
