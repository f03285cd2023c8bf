"""Lines that are on many pages of one host, against a count by hand, in any division into shards."""

import json
import random
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dropped import edits
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import layout, parquet
from tests.corpora import context

SHARED = (
    "We use biscuits on this site, and so do our partners.",
    "Terms of use. The mill is not liable for flour that gets wet on the way home.",
    "People who bought this sack also bought a smaller sack.",
    "Subscribe to the miller's letter, once a month",
)
OWN = "The {} stone of mill {} is dressed on day {} by a man from the town."


def folded(line: str) -> str:
    """As the step compares lines of ASCII: letters and digits without case, every digit the same."""
    return "".join("0" if c.isdigit() else c.lower() for c in line if c.isalnum())


def pages(draw: random.Random, hosts: int) -> list[dict]:
    """Pages of hosts of unequal size. Each host repeats some shared lines on a share of its pages of its own."""
    found = []
    for host in range(hosts):
        shares = {line: draw.choice((0, 0.1, 0.3, 1)) for line in SHARED}
        for page in range(draw.choice((1, 4, 5, 6, 30))):
            lines = [OWN.format(draw.choice("one two three".split()), host, page), "Prices", "", f"Page {page}"]
            for line, share in shares.items():
                if draw.random() < share:
                    variant = draw.choice((line, line.upper(), line.replace(",", " -")))
                    lines.insert(draw.randrange(len(lines) + 1), variant)
                    if draw.random() < 0.1:
                        lines.append(variant)
            url = f"https://{draw.choice(('', 'www.'))}h{host}.example/{page}" if host else None
            found.append({"text": "\n".join(lines), "url": url})
    draw.shuffle(found)
    return found


def curated(folder: Path, home: Path, rows: list[dict], shards: int, **settings) -> Corpus:
    folder.mkdir()
    for shard in range(shards):
        lines = [json.dumps(row) for row in rows[shard::shards]]
        (folder / f"{shard:02}.jsonl").write_text("\n".join(lines) + "\n")
    recipe = {
        "name": "hosts",
        "sources": [{"name": "web", "jsonl": [f"{folder}/*.jsonl"], "url_column": "url", "shard_bytes": 1}],
        "steps": [{"step": "extract", "engine": "plain"}, {"step": "host_lines", **settings}],
    }
    *_, last = curate(context(str(home)), load(recipe))
    return last.left


def documents(corpus: Corpus, name: str) -> dict[str, dict]:
    (stage,) = [each for each in corpus.stages if each.name == name]
    tables = [parquet.read_table(layout.part(stage.folder, i)) for i in range(len(corpus.sources))]
    return {row["id"]: row for table in tables for row in table.to_pylist()}


def expected(before: dict[str, dict], min_pages: int, min_share: float, min_characters: int) -> dict[str, str]:
    """The texts that are left, by id."""
    of_host, with_line = defaultdict(set), defaultdict(set)
    for key, row in before.items():
        if host := host_of(row):
            of_host[host].add(key)
            for line in row["text"].split("\n"):
                with_line[host, folded(line)].add(key)
    gone = defaultdict(set)
    for (host, line), keys in with_line.items():
        share = Fraction(str(min_share))  # 7 of 10 pages are 0.7 of them
        if len(line) >= min_characters and len(keys) >= max(min_pages, share * len(of_host[host])):
            for key in keys - {min(keys)}:
                gone[key].add(line)
    texts = {}
    for key, row in before.items():
        texts[key] = "\n".join(line for line in row["text"].split("\n") if folded(line) not in gone[key])
    return texts


def host_of(row: dict) -> str:
    return (row["url"] or "").removeprefix("https://").removeprefix("www.").partition("/")[0]


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (1, {}),
        pytest.param(
            2, {"min_pages": 2, "min_share": 0, "min_characters": 1, "partitions": 7}, marks=pytest.mark.extended
        ),
        pytest.param(3, {"min_pages": 4, "min_share": 1, "min_characters": 4}, marks=pytest.mark.extended),
    ],
)
def test_texts_are_those_of_a_count_by_hand_in_any_division(tmp_path, seed, settings):
    rows = pages(random.Random(seed), 12)
    rules = {"min_pages": 5, "min_share": 0.2, "min_characters": 20} | settings
    rules.pop("partitions", None)
    left = []
    for shards in (1, 3):
        corpus = curated(tmp_path / f"{shards}", tmp_path / f"home-{shards}", rows, shards, **settings)
        before, after = (documents(corpus, name) for name in ("documents", "host_lines"))
        wanted = expected(before, **rules)
        assert {key: lines_of(row["text"]) for key, row in after.items()} == {
            key: lines for key, text in wanted.items() if (lines := lines_of(text))
        }
        # ids are those of rows of files, so another division has other first pages
        left.append(
            Counter((host_of(row), line) for row in after.values() for line in set(map(folded, lines_of(row["text"]))))
        )
    assert left[0] == left[1]
    (stage,) = [each for each in corpus.stages if each.name == "host_lines"]
    result = stage.result
    assert result["without_host"] == sum(row["url"] is None for row in rows)
    assert result["repeated"] > 50 and result["lines"] > 0


def test_seven_of_ten_pages_are_a_share_of_seven_tenths(tmp_path):
    own = [f"The {letter}-stone is dressed by a man from the town" for letter in "abcdefghij"]
    texts = [f"{SHARED[0]}\n{line}" for line in own[:7]] + own[7:]
    rows = [{"text": text, "url": f"https://a.example/{i}"} for i, text in enumerate(texts)]
    for share, left in ((0.7, 1), (0.71, 7)):
        home = tmp_path / f"home-{share}"
        after = documents(curated(tmp_path / f"{share}", home, rows, 1, min_share=share), "host_lines")
        assert sum(SHARED[0] in row["text"] for row in after.values()) == left


def test_cuts_are_in_the_ledger_and_other_hosts_keep_the_line(tmp_path):
    banner = SHARED[0]
    own = [f"The {letter}-stone is dressed by a man from the town" for letter in "abcdefghijklmnopqrst"]
    rows = [{"text": f"{banner}\n{line}", "url": f"https://a.example/{i}"} for i, line in enumerate(own)]
    rows += [{"text": f"{banner}\n{line}", "url": f"https://b.example/{i}"} for i, line in enumerate(own[:4])]
    rows += [{"text": banner, "url": f"https://c.example/{i}"} for i in range(6)]
    corpus = curated(tmp_path / "pages", tmp_path / "home", rows, 2, min_share=0.5)
    after = documents(corpus, "host_lines")
    with_banner = [row["url"].split("/")[2] for row in after.values() if banner in row["text"]]
    assert sorted(with_banner) == ["a.example", *["b.example"] * 4, "c.example"]
    (stage,) = [each for each in corpus.stages if each.name == "host_lines"]
    counts = stage.step_counts[0]
    assert counts["rows_in"] - counts["rows_out"] == 5  # of c.example nothing else is left
    shown = [row for _, row in edits(str(tmp_path / "home"), "host_lines", 99)]
    assert {row["rule"] for row in shown} == {"host_line"}
    assert {row["removed"].strip() for row in shown} == {banner}
