"""Lines that are on many pages of one host, against a count by hand, in any division into shards."""

import json
import random
from collections import defaultdict
from fractions import Fraction
from itertools import product
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
TOGETHER = (
    ("from mill import wheel, stone, sack", "wheel.turn({})", "print(wheel)"),
    ("| Weight of the sack in grams | {} |", "| --- | --- |", "| Country of origin of the corn | Norway |"),
    ("- Home of the mill", "- Wheel", "- Contact and opening hours"),
    ("```python", "import the_whole_mill", "", "wheel = '{}' * a_number_of_times", "", "print(wheel)", "```"),
    ("```", "make install-the-mill", "", "mill --version --verbose", "```"),
    ("day;sacks;price", "2024-03-17;{};18.50", "2024-03-18;99;17.25"),
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
            for together in TOGETHER:
                if draw.random() < 0.5:
                    own = (
                        draw.choice("abcdefghijklmnopqrstuvwxyz") if "```" in together[0] else draw.randrange(100, 1000)
                    )
                    lines += ["", *(line.format(own) for line in together)]
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


def parts(text: str) -> list[list[str]]:
    """The lines that belong together; each by itself in a text without a blank line between two others."""
    found: list[list[str]] = [[]]
    in_listing = False
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line)
        elif found[-1] and not in_listing:
            found.append([])
        in_listing ^= line.startswith("```")
    found = [each for each in found if each]
    return found if "\n\n" in text.strip() else [[line] for each in found for line in each]


def expected(before: dict[str, dict], min_pages: int, min_share: float, min_characters: int) -> dict[str, list[str]]:
    """The lines that are left, by id."""
    of_host, with_line = defaultdict(set), defaultdict(set)
    for key, row in before.items():
        if host := host_of(row):
            of_host[host].add(key)
            for part in parts(row["text"]):
                if sum(len(folded(line)) for line in part) >= min_characters:
                    for line in part:
                        with_line[host, same(line)].add(key)
    gone = defaultdict(set)
    for (host, line), keys in with_line.items():
        share = Fraction(str(min_share))  # 7 of 10 pages are 0.7 of them
        if line and len(keys) >= max(min_pages, share * len(of_host[host])):
            for key in keys - {min(keys)}:
                gone[key].add(line)
    left = {}
    for key, row in before.items():
        left[key] = [
            line
            for part in parts(row["text"])
            if sum(len(folded(line)) for line in part) < min_characters
            or any(same(line) and same(line) not in gone[key] for line in part)
            for line in part
        ]
    return left


def same(line: str) -> str:
    """What is compared of a line; "" for one that is not."""
    digits = sum(c.isdigit() for c in line)
    return line if folded(line) and (line.startswith("|") or 2 * digits > len(folded(line))) else folded(line)


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
    for shards in (1, 3):
        corpus = curated(tmp_path / f"{shards}", tmp_path / f"home-{shards}", rows, shards, **settings)
        before, after = (documents(corpus, name) for name in ("documents", "host_lines"))
        wanted = expected(before, **rules)
        left = {key: lines_of(row["text"]) for key, row in after.items()}
        assert left == {key: lines for key, lines in wanted.items() if lines}
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


def test_code_tables_and_stanzas_stay_whole_and_menus_go(tmp_path):
    code = (
        "from mill.wheels import WaterWheel\nwheel = WaterWheel({word!r})\nwheel.report(file=sys.stdout, verbose=True)"
    )
    table = "| Weight of the sack in grams | {n} |\n| Country of origin of the corn | Norway |"
    stanza = "The {word} wheel is not the last\nTurn, turn, old wheel, until the river sleeps"
    menu = "- Home\n- Our mills and wheels\n- Contact"
    number = "Written by the miller on day {n} of the year"
    own = [{"n": 100 + n, "word": f"{a}{b}x"} for n, (a, b) in enumerate(product("abcdefgh", "lmnop"))]
    rows = [
        {"text": "\n\n".join((menu, code, table, number, stanza)).format(**each), "url": f"https://a.example/{n}"}
        for n, each in enumerate(own)
    ]
    after = documents(curated(tmp_path / "pages", tmp_path / "home", rows, 2), "host_lines")
    left = {row["text"] for row in after.values()}
    kept = {"\n\n".join((code, table, stanza)).format(**each) for each in own}
    assert len(left) == 40 and len(left & kept) == 39 and len(left & {row["text"] for row in rows}) == 1


def test_rows_of_numbers_stay(tmp_path):
    draw = random.Random(5)
    head = "year,month,temperature,rain of the month"
    rows = [
        {
            "text": "\n".join([head, *(f"{2000 + n},{month},{draw.random():.4f},{n}" for month in range(1, 13))]),
            "url": f"https://a.example/{n}",
        }
        for n in range(10)
    ]
    after = documents(curated(tmp_path / "pages", tmp_path / "home", rows, 2), "host_lines")
    left = sorted(row["text"].removeprefix(f"{head}\n") for row in after.values())
    assert left == sorted(row["text"].removeprefix(f"{head}\n") for row in rows)
    assert sum(row["text"].startswith(head) for row in after.values()) == 1
