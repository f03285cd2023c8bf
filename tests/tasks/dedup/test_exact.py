"""Exact duplicates against groups in a dictionary, and the keep order against sorted()."""

import random
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.flows.stages.dedup.exact_duplicates import content_duplicates, url_duplicates
from gristmill.flows.stages.learned_filters import learned_filter
from gristmill.storage import layout, parquet, sorted_files
from gristmill.tasks.dedup.exact import ContentDedup, Exact, UrlDedup, choose
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.documents.instants import instant
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.characters import CODE_POINTS, lowercase
from gristmill.tasks.kernels.folding import words_only
from gristmill.tasks.models.quality import Quality
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.step import Url
from tests.corpora import Texts, context, ledger, planted_stage, read
from tests.planted.pages import page
from tests.planted.plan import Plan
from tests.tasks.dedup.near.test_signatures import words

COPIES = ("exact", "recrawl")
TRICKY = "aAbB .,\n-\u00ad\u200bé\u0301ÉΣς\u023a\u0130İ١²🙂\u4e2d\u0e01\u0e34\U00010400\U0001d7ce"


def plain_words(text: str) -> str:
    """Words joined by spaces, straight from the definition; a run is one in every script."""
    return " ".join(words(text, "characters"))


@settings(deadline=None)
@given(st.lists(st.text(TRICKY) | st.text()))
def test_the_words_of_documents(texts):
    data, ends = words_only(*utf8(pa.array(texts, pa.large_string())))
    found = [data[a:b].tobytes().decode() for a, b in zip(ends[:-1], ends[1:], strict=True)]
    assert found == list(map(plain_words, texts))


def test_no_lower_case_needs_more_than_half_as_much_again():
    def size(c: np.ndarray) -> np.ndarray:
        return 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000)

    assert (2 * size(lowercase()) <= 3 * size(np.arange(CODE_POINTS))).all()


def deduplicate(home: Path, documents: list[list[dict]], step: Exact, sources=(), scores=(), steps=()):
    """(id: representative) of the dropped, the ids of the kept, and the finished stage."""
    texts = Texts(documents, list(sources))
    corpus = texts.corpus(str(home))
    if scores:
        built = planted_stage("signals", str(home / "scores"))
        for i, part in enumerate(documents):
            values = pa.array([scores[d["id"]] for d in part], pa.float64())
            ids = pa.array([d["id"] for d in part], pa.string())
            parquet.write_table(built.part(i), pa.table({"id": ids, "score": values}))
        corpus = corpus.measuring(built)
    recipe = SimpleNamespace(sources=texts.recipe.sources, steps=steps)
    by = url_duplicates if isinstance(step, UrlDedup) else content_duplicates
    kept = by(context(str(home)), recipe, corpus, step).kept
    lost = ledger(kept, corpus.places.shards())
    dropped = dict(zip(lost["id"].to_pylist(), lost["representative"].to_pylist(), strict=True))
    return dropped, set(read(kept, corpus.places.shards())["id"].to_pylist()), kept


def truth(documents: list[list[dict]], what, rank) -> dict[str, str]:
    """(id: representative) by a dictionary; documents of which `what` gives "" are not compared."""
    groups: dict[str, list[dict]] = {}
    for document in (d for part in documents for d in part):
        groups.setdefault(what(document), []).append(document)
    groups.pop("", None)
    found = {}
    for members in groups.values():
        first, *others = sorted(members, key=lambda d: (rank(d), d["id"]))
        found |= {other["id"]: first["id"] for other in others}
    return found


def dealt(documents: list[dict], parts: int, seed: int) -> list[list[dict]]:
    shuffled = random.Random(seed).sample(documents, len(documents))
    return [shuffled[i::parts] for i in range(parts)]


CASES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 9))


@pytest.mark.extended
@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(TRICKY, max_size=3), max_size=30), CASES)
def test_of_documents_with_the_same_words_the_smallest_id_stays(tmp_path_factory, texts, case):
    parts, partitions, seed = case
    given = [{"id": f"{i:03d}", "text": text} for i, text in enumerate(texts)]
    documents = dealt(given, parts, seed)
    home = tmp_path_factory.mktemp("home")
    dropped, kept, _ = deduplicate(home, documents, ContentDedup(partitions=partitions))
    assert dropped == truth(documents, lambda d: plain_words(d["text"]), lambda d: 0)
    assert kept == {d["id"] for d in given} - set(dropped)


def moments(count: int, seed: int) -> list[tuple[datetime | None, str | None]]:
    """Points in time, and how archives and tables write them; few, so that many are equal."""
    draw = random.Random(seed)
    found: list[tuple[datetime | None, str | None]] = []
    for _ in range(count):
        moment = datetime(2020 + draw.randrange(3), 1 + draw.randrange(2), 1, tzinfo=UTC)
        moment += draw.choice([timedelta(0), timedelta(microseconds=250_000), timedelta(hours=3)])
        zone = timezone(timedelta(hours=draw.randrange(-3, 4)))
        forms = [moment.isoformat(), moment.astimezone(zone).isoformat(" "), moment.replace(tzinfo=None).isoformat()]
        forms.append(moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{moment.microsecond:06d}000Z")
        if moment.day == 1 and moment.time() == datetime.min.time():
            forms += [moment.strftime("%Y-%m"), moment.strftime("%Y-%m-%d")] + [moment.strftime("%Y")] * (
                moment.month < 2
            )
        found.append((moment, draw.choice(forms)))
        if draw.random() < 0.2:
            found[-1] = (None, draw.choice([None, "", "yesterday", "2024-13-01T00:00:00Z", "2024-02-30", "20", "١٢٣٤"]))
    return found


def ordered(count: int) -> tuple[list[list[dict]], list[str], dict[str, float | None]]:
    """Three shards of two sources with few different texts, and a score for most documents."""
    draw = random.Random(5)
    texts = ["one, two", "One two", "ONE   two...", "three", "Three!", "three"]
    given = [
        {"id": f"{draw.getrandbits(40):010x}", "text": draw.choice(texts), "date": date, "moment": moment}
        for moment, date in moments(count, 7)
    ]
    scores = {d["id"]: draw.choice([None, float("nan"), 0.5, 0.75, -1.0, 2.0]) for d in given}
    return dealt(given, 3, 1), ["b", "a", "b"], scores


@pytest.mark.parametrize(
    "keep",
    [(), ("source",), ("newest",), ("oldest",), ("longest",), ("best",), ("source", "newest"), ("best", "longest")],
)
def test_the_kept_document_is_the_first_by_the_criteria(tmp_path, keep):
    documents, sources, scores = ordered(90)
    source = {d["id"]: name for part, name in zip(documents, sources, strict=True) for d in part}
    late = datetime.max.replace(tzinfo=UTC)

    def rank(d: dict) -> list:
        moment, score = d["moment"], scores[d["id"]]
        none = score is None or score != score
        by = {
            "source": ["b", "a"].index(source[d["id"]]),
            "newest": (moment is None, late - (moment or late)),
            "oldest": (moment is None, moment or late),
            "longest": -len(d["text"]),
            "best": (none, 0 if none else -score),
        }
        return [by[criterion] for criterion in keep]

    given = [[{k: v for k, v in d.items() if k != "moment"} for d in part] for part in documents]
    step = ContentDedup(keep=keep, best="score" if "best" in keep else None, partitions=2)
    dropped, _, _ = deduplicate(tmp_path, given, step, sources, scores if "best" in keep else ())
    assert dropped == truth(documents, lambda d: plain_words(d["text"]), rank)
    assert len(dropped) == 88


def test_the_score_of_a_model_decides_and_without_one_a_document_comes_last(tmp_path):
    prose = [f"The miller of {place} grinds {grain} for the bakers." for place in "ABCDE" for grain in ("rye", "oats")]
    documents = [[{"id": f"{shard}{i}", "text": text} for i, text in enumerate(prose)] for shard in range(2)]
    recipe = SimpleNamespace(**vars(Texts(documents, ["good", "web"]).recipe), steps=(), seed=1, heldout_fraction=0.0)
    shop, corpus = context(str(tmp_path)), Texts(documents, ["good", "web"]).corpus(str(tmp_path))
    corpus = learned_filter(
        shop, recipe, corpus, Quality(reference=("good",), min_score=0.0, dimensions=4, buckets=100)
    )
    lost = []
    for step in (ContentDedup(), ContentDedup(keep=("best",), best="quality")):
        lost.append(set(ledger(content_duplicates(shop, recipe, corpus, step).kept, [0, 1])["id"].to_pylist()))
    assert lost == [{f"{shard}{i}" for i in range(10)} for shard in (1, 0)]


def test_an_order_must_make_sense():
    assert UrlDedup().keep == ("newest",)
    with pytest.raises(ValidationError, match="the key `survivor` is no longer used; use instead: `keep`"):
        UrlDedup(survivor=["newest"])
    for wrong in ({"keep": ["best"]}, {"best": "score"}, {"keep": ["newest", "newest"]}, {"keep": ["any"]}):
        with pytest.raises(ValidationError):
            ContentDedup(**wrong)


def test_a_signal_that_is_missing_or_no_number_is_an_error(tmp_path):
    documents = [[{"id": "1", "text": "one"}, {"id": "2", "text": "one"}]]
    with pytest.raises(LookupError, match="no column score"):
        deduplicate(tmp_path, documents, ContentDedup(keep=("best",), best="score"))
    with pytest.raises(ValueError, match="`best` is title, which is string and not a number"):
        deduplicate(tmp_path, documents, ContentDedup(keep=("best",), best="title"))


def test_dates_that_are_equal_are_one_moment():
    same = ["2024", "2024-01", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01 01:00:00+01:00", "20240101"]
    assert {instant(date) for date in same} == {1_704_067_200_000_000}


URLS = {
    "https://a.example/": "https://a.example/",
    "HTTPS://A.example:443": "https://a.example/",
    "https://a.example/?utm_source=mail#top": "https://a.example/",
    "http://a.example/": "http://a.example/",
    "https://www.a.example/": "https://www.a.example/",
    "https://a.example/%7Ex": "https://a.example/~x",
    "https://a.example/~x": "https://a.example/~x",
    "urn:isbn:1": "",
    "": "",
    None: "",
}


@pytest.mark.parametrize("folded", [False, True])
def test_of_documents_with_one_url_the_newest_stays(tmp_path, folded):
    draw = random.Random(3)
    given = [
        {"id": f"{i:02d}", "text": f"text {i}", "url": draw.choice(list(URLS)), "date": f"202{draw.randrange(4)}"}
        for i in range(60)
    ]
    documents = dealt(given, 2, 0)
    options = Canonical(fold_scheme=folded, fold_www=folded)

    def canonical(d: dict) -> str:
        url = URLS[d["url"]]
        return url.replace("http:", "https:").replace("www.", "") if folded else url

    expected = truth(documents, canonical, lambda d: -int(d["date"]))
    steps = (Url(canonical=options),)
    dropped, kept, built = deduplicate(tmp_path, documents, UrlDedup(), steps=steps)
    assert dropped == expected
    assert {d["id"] for d in given if not URLS[d["url"]]} <= kept
    assert built.manifest["record"]["settings"]["canonical"] == options.model_dump(mode="json")
    assert deduplicate(tmp_path / "own", documents, UrlDedup(canonical=options))[0] == expected


def test_what_a_page_calls_canonical_does_not_count(tmp_path):
    given = [{"id": str(i), "text": str(i), "canonical_url": "https://a.example/"} for i in range(3)]
    assert deduplicate(tmp_path, [given], UrlDedup())[0] == {}


def test_the_ledger_says_what_the_group_shares(tmp_path):
    given = [
        {"id": "1", "text": "Mill, stone.", "url": "https://a.example/b?gclid=1"},
        {"id": "2", "text": "mill STONE", "url": "https://a.example/b"},
        {"id": "3", "text": "mill stone", "url": "https://a.example/b#c"},
    ]
    digest = xxhash.xxh3_128_hexdigest(b"mill stone")
    for step, rule, what in [(ContentDedup(), "content", digest), (UrlDedup(), "url", "https://a.example/b")]:
        _, _, built = deduplicate(tmp_path, [given[:1], given[1:]], step)
        rows = [{k: v for k, v in row.items() if v is not None} for row in ledger(built, [0, 1]).to_pylist()]
        told = {"step": step.step, "rule": rule, "detail": f"group of 3: {what}", "representative": "1"}
        assert rows == [{"id": "2", **told}, {"id": "3", **told}]
        [first, second] = built.records("split")
        assert [first["rows_in"], first["rows_out"], second["rows_in"], second["rows_out"]] == [1, 1, 2, 0]


@pytest.mark.extended
def test_no_row_depends_on_the_partitions_and_no_kept_document_on_the_shards(tmp_path):
    documents, sources, _ = ordered(60)
    given = [[{k: v for k, v in d.items() if k != "moment"} for d in part] for part in documents]
    everything = [d for part in given for d in part]
    dropped, written = set(), []
    for partitions in (1, 7):
        step = ContentDedup(keep=("newest", "longest"), partitions=partitions)
        found, _, built = deduplicate(tmp_path / str(partitions), given, step, sources)
        dropped.add(tuple(sorted(found.items())))
        paths = [path(built.folder, i) for i in range(3) for path in (layout.part, layout.ledger_part)]
        written.append([parquet.read_table(path) for path in paths])
        for parts in (1, 4):
            home = tmp_path / f"{partitions}-{parts}"
            found, _, _ = deduplicate(home, dealt(everything, parts, partitions), step)
            dropped.add(tuple(sorted(found.items())))
    assert len(dropped) == 1 and written[0] == written[1]


def test_half_a_digest_is_not_enough(tmp_path):
    rows = pa.table(
        {
            "hash": pa.array([7, 7, 7], pa.uint64()),
            "low": pa.array([1, 2, 1], pa.uint64()),
            "id": ["a", "b", "c"],
            "shard": pa.array([0, 0, 0], pa.int64()),
        }
    )
    sorted_files.write(f"{tmp_path}/hashes/00000.parquet", rows, "hash")
    ranges, hashes = KeyRanges(1), SortedFiles(f"{tmp_path}/hashes", 1)
    counts = choose(str(tmp_path), 0, ranges, hashes, KeyRanges(1, 1), ContentDedup())
    assert counts == {"groups": 1, "dropped": 1, "largest": 2}
    assert sorted_files.read(f"{tmp_path}/dropped/00000.parquet", 0, 1)["id"].to_pylist() == ["c"]


@pytest.fixture(scope="module")
def planted() -> list[dict]:
    """Pages of a made-up crawl, a tenth of them copies of others, a tenth of them crawled again."""
    plan = Plan(pages=120, exact=0.1, recrawl=0.1, near=0.05, min_words=20, max_words=60)
    return [page(plan, number).truth for number in range(plan.pages)]


def test_planted_copies_and_recrawls_are_found(tmp_path, planted):
    given = [
        {"id": f"{t['page']:03d}", "text": t["text"], "url": t["url"], "date": t["date"]}
        for t in planted
        if t["yields"] == "page"
    ]
    there = {d["id"]: d for d in given}
    pairs = {kind: [(f"{t['page']:03d}", f"{t['base']:03d}") for t in planted if t["kind"] == kind] for kind in COPIES}
    alike = [*pairs["exact"], *((a, b) for a, b in pairs["recrawl"] if there[a]["text"] == there[b]["text"])]
    dropped, _, _ = deduplicate(tmp_path, dealt(given, 3, 0), ContentDedup())
    assert len(alike) > 12 and all(dropped.get(a, a) == dropped.get(b, b) for a, b in alike)
    assert dropped == truth([given], lambda d: plain_words(d["text"]), lambda d: 0)

    dropped, _, _ = deduplicate(tmp_path, dealt(given, 3, 0), UrlDedup())
    assert len(pairs["recrawl"]) == 12
    for again, base in pairs["recrawl"]:
        newer, older = sorted((again, base), key=lambda i: there[i]["date"], reverse=True)
        assert dropped == dropped | {older: newer}
    assert len(dropped) == 12
