"""Words by language against ICU, and the speed of the scan by script; prints, asserts nothing about time."""

import os
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.kernels.scan import REAL, scan
from gristmill.tasks.kernels.segmentation import characters, neighbours

# Of these ICU finds the words with dictionaries, Korean after digits; in all others by the rules of UAX #29.
WITHOUT_SPACES = {"ja", "km", "lo", "th", "zh"}


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """Documents and sentences of about a hundred languages."""
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder of the data sets")
    found: dict[str, list[str]] = {}
    for archive in ("langid_zackw_117docs.tar.gz", "langid_lingua_sentences_75.tar.gz"):
        with tarfile.open(Path(data) / archive) as members:
            for member in members:
                name = Path(member.name).name
                if member.isfile() and name.endswith(".txt"):
                    language = name.split(".")[0].strip("_")
                    found.setdefault(language, []).append(members.extractfile(member).read().decode())
    return dict(sorted(found.items()))


def words(text: str) -> list[tuple[int, int]]:
    """Where the scan's words begin and stop, in code points."""
    found = scan(pa.array([text], pa.large_string()))
    before = np.concatenate([[0], np.cumsum((found.data & 0xC0) != 0x80)])
    return list(zip(before[found.word_start].tolist(), before[found.word_stop].tolist(), strict=True))


def icu_words(text: str) -> list[tuple[int, int]]:
    """Those of ICU, without white space and U+200B, a run of one mark or symbol put together as here."""
    from icu4py.breakers import WordBreaker

    found, at = [], 0
    for segment in WordBreaker(text, "en"):
        start, at = at, at + len(segment)
        if not segment.strip(" \t\n\r\u200b\xa0\u3000"):
            continue
        run = segment[0] if len(set(segment)) == 1 and not segment[0].isalnum() else None
        if run and found and found[-1][1:] == (start, run):
            found[-1] = (found[-1][0], at, run)
        else:
            found.append((start, at, run))
    return [(start, stop) for start, stop, _ in found]


def real(text: str, spans: list[tuple[int, int]]) -> int:
    return sum(any(c.isalnum() for c in text[a:b]) for a, b in spans)


@pytest.mark.bench
def test_words_against_icu(texts, capsys):
    pytest.importorskip("icu4py", reason="icu4py is not installed")
    with capsys.disabled():
        print("\nlanguage  words of ICU  ours/ICU  F1 of boundaries")
        spaced = []
        for language, documents in texts.items():
            ours, theirs, common, bounds = 0, 0, 0, 0
            for text in documents:
                mine, icu = words(text), icu_words(text)
                ours, theirs = ours + real(text, mine), theirs + real(text, icu)
                # A place counts once, whether a word begins there, stops, or both.
                mine, icu = {place for span in mine for place in span}, {place for span in icu for place in span}
                common, bounds = common + len(mine & icu), bounds + len(mine) + len(icu)
            f1 = 2 * common / bounds
            if language in WITHOUT_SPACES or f1 < 0.9995:
                print(f"{language:8} {theirs:13,} {ours / theirs:9.3f} {f1:17.4f}")
            if language not in WITHOUT_SPACES:
                spaced.append((f1, language))
        median = np.median([f1 for f1, _ in spaced])
        print(f"{len(spaced)} languages with spaces: F1 {median:.4f} in the median, the least {sorted(spaced)[:2]}")


@pytest.mark.bench
def test_scan_speed(texts, capsys):
    with capsys.disabled():
        start = time.thread_time()
        characters.__wrapped__()
        neighbours.__wrapped__()
        print(f"\ntables: {time.thread_time() - start:.2f} s")
        for language in ("en", "de", "vi", "ru", "ar", "hi", "ko", "ja", "zh", "th"):
            lines = "\n".join(texts[language]).splitlines()
            paragraphs = ["\n".join(lines[i : i + 20]) for i in range(0, len(lines), 20)]
            size = sum(len(p.encode()) for p in paragraphs)
            batch = pa.array(paragraphs * (1_000_000 // size), pa.large_string())
            found, best = scan(batch), float("inf")
            for _ in range(30):
                start = time.thread_time()
                scan(batch)
                best = min(best, time.thread_time() - start)
            share = np.count_nonzero(found.word_bits & REAL) / len(found.word_bits)
            size, count = len(found.data), len(found.word_bits)
            print(f"{language}: {size / best / 1e6:.0f} MB/s, {size / count:.1f} bytes a word, {share:.0%} real words")
