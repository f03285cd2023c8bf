"""Verdicts of the word lists of URLs beside those of datatrove's own URL filter, with the lists that it carries."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from gristmill.tasks.url.step import Url, measure

pytest.importorskip("ahocorasick", reason="pip install pyahocorasick, which datatrove's URL filter needs")
filters = pytest.importorskip("datatrove.pipeline.filters", reason="pip install -e '.[bench]'")
from datatrove.data import Document  # noqa: E402
from datatrove.utils._import_utils import ASSETS_PATH  # noqa: E402

pytestmark = pytest.mark.bench

LISTS = ("banned_subwords", "banned_words", "soft_banned_words")
RULES = {"blacklisted_subword": "strict", "hard_blacklisted": "hard", "soft_blacklisted": "soft"}


def urls_of(path: Path) -> list[str]:
    with open(path, "rb") as stream:
        return [
            record.headers["WARC-Target-URI"]
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=False)
        ]


def test_verdicts_are_those_of_datatrove(capsys):
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    paths = [Path(ASSETS_PATH, f"{name}.txt") for name in LISTS]
    subwords, words, soft = ([line for line in path.read_text().splitlines() if line] for path in paths)
    crawled = [url for path in sorted(Path(data, "warc", "web").glob("*.warc.gz")) for url in urls_of(path)]
    # few of the crawl's URLs hit: one word or two in each of the others, hidden in all ways
    dice = random.Random(20)
    urls = list(crawled)
    for url in crawled:
        for entry in dice.sample(subwords + words + soft, dice.choice((1, 2))):
            entry = dice.choice((str, str.upper, str.title))(entry).replace(
                " ", dice.choice(("-", "_", "%20", "+", ""))
            )
            at = url.find("/", 8) + 1 or len(url)
            url = url[:at] + entry + dice.choice(("/", "-", "", "é", "?")) + url[at:]
        urls.append(url)
    step = Url(
        strict_substrings=(str(paths[0]),), hard_words=(str(paths[1]),), soft_words=(str(paths[2]),),
        definition="datatrove",
    )  # fmt: skip
    found = measure(step, pa.table({"url": urls}))
    judge = filters.URLFilter(
        banned_subwords=subwords, banned_words=words, soft_banned_words=soft, use_integrated_lists=False
    )
    dropped = 0
    for url, strict, hard, soft_words in zip(
        urls,
        *(found[name].to_pylist() for name in ("url_strict_substring", "url_hard_word", "url_soft_words")),
        strict=True,
    ):
        verdict = judge.filter(Document(text="", id="", metadata={"url": url}))
        ours = "hard" if hard else "soft" if soft_words > step.max_soft_words else "strict" if strict else ""
        assert ours == ("" if verdict is True else RULES[verdict[1]]), url
        dropped += bool(ours)
    with capsys.disabled():
        print(f"\n{len(urls)} URLs, both drop {dropped}, verdicts equal 100%")
