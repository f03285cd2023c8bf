"""Pages with the text that people marked as their main content: their two halves, the metrics of their benchmarks, and
which words of a page the text has, the labels of the training.

A folder holds one folder for each set, as its makers publish it: `aeb` (article-extraction-benchmark:
ground-truth.json, html/*.html.gz), `wcxb` (WCXB: ground-truth/*.json, html/*.html.gz), `cleaneval-dev` (CleanEval:
GoldStandard/*.txt, input/*.html). `wcxb-train` has more pages of WCXB, which classifiers alone learn from.
"""

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import NamedTuple
from urllib.parse import urlsplit

import numba as nb
import numpy as np
import orjson
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

# Those that reports are made of.
SETS = ("aeb", "cleaneval", "wcxb")
_TO_LEARN = "wcxb-train"
_WORD = re.compile(r"\w+")


class Gold(NamedTuple):
    """A page: its set, its name there, its address ("" if unknown), its kind ("" outside of WCXB), HTML and text."""

    set: str
    name: str
    url: str
    kind: str
    html: str
    text: str

    @property
    def trains(self) -> bool:
        """Whether classifiers may learn from it: half of each set, all of `wcxb-train`; the others are for reports
        alone."""
        half = hashlib.sha256(f"{self.set}/{self.name}".encode()).digest()[-1] % 2 == 0
        return half or self.set == _TO_LEARN

    @property
    def host(self) -> str:
        """The host of its address without `www.`, "" if that is unknown."""
        return (urlsplit(self.url).hostname or "").removeprefix("www.")


def read(folder: Path) -> list[Gold]:
    """All pages of the sets that the folder has, in a fixed order; some 100 KB each.

    Raises FileNotFoundError if it has none of the sets.
    """
    readers = {"aeb": _aeb, "cleaneval-dev": _cleaneval, "wcxb": _wcxb, _TO_LEARN: _wcxb}
    found = [page for name, reader in readers.items() if (folder / name).is_dir() for page in reader(folder / name)]
    if not found:
        raise FileNotFoundError(f"{folder} has none of the folders {', '.join(readers)}")
    return found


def _aeb(folder: Path) -> Iterable[Gold]:
    for name, entry in sorted(orjson.loads((folder / "ground-truth.json").read_bytes()).items()):
        page = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()).decode()
        yield Gold("aeb", name, entry.get("url", ""), "", page, entry["articleBody"])


def _wcxb(folder: Path) -> Iterable[Gold]:
    for path in sorted((folder / "ground-truth").glob("*.json")):
        entry = orjson.loads(path.read_bytes())
        kind = entry.get("_internal", {}).get("page_type", "article")
        kind = kind.get("primary", "article") if isinstance(kind, dict) else kind
        page = _decoded(gzip.decompress((folder / "html" / f"{path.stem}.html.gz").read_bytes()))
        text = entry["ground_truth"].get("main_content") or ""
        # as the benchmark's evaluate.py names them
        kind = "collection" if kind == "category" else kind
        yield Gold(folder.name, path.stem, entry.get("url") or "", kind, page, text)


def _cleaneval(folder: Path) -> Iterable[Gold]:
    for path in sorted((folder / "GoldStandard").glob("*.txt")):
        data = path.read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
        text = re.sub(r"\A\s*URL:.*\n", "", text)
        text = re.sub(r"<(?:p|h|l)>", " ", text, flags=re.IGNORECASE)
        page = _decoded((folder / "input" / f"{path.stem}.html").read_bytes())
        yield Gold("cleaneval", path.stem, "", "", page, text)


def _decoded(data: bytes) -> str:
    return bytes_to_str(data, detect_encoding(data, from_html_meta=True) or "utf-8")


class Score(NamedTuple):
    precision: float
    recall: float
    f1: float


def score(name: str, pairs: list[tuple[str, str]]) -> Score:
    """Of (extracted, gold) texts by the metric of their set.

    aeb: its own evaluate.py, runs of four words; precision and recall are means over pages, F1 is theirs.
    wcxb: its own evaluate.py, words as a multiset in lower case; all three are means over pages. CleanEval's script
    compares by edit distance over words; here it is measured as WCXB is, which overlooks the order of words.
    """
    if name != "aeb":
        return Score(*(mean(column) for column in zip(*(word_f1(*pair) for pair in pairs), strict=True)))
    counts = [_shingles(*pair) for pair in pairs]
    precision = mean(both / found for both, found, _ in counts if found)
    recall = mean(both / true for both, _, true in counts if true)
    return Score(precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0)


def word_f1(found: str, true: str) -> Score:
    """Precision, recall and F1 of the multiset of words."""
    ours, theirs = _WORD.findall(found.lower()), _WORD.findall(true.lower())
    if not ours or not theirs:
        same = float(not ours and not theirs)
        return Score(same, same, same)
    both = (Counter(ours) & Counter(theirs)).total()
    return Score(both / len(ours), both / len(theirs), 2 * both / (len(ours) + len(theirs)))


def _shingles(found: str, true: str, n: int = 4) -> tuple[int, int, int]:
    """(in both, in the found text, in the gold text) of the runs of four words."""

    def runs(text: str) -> Counter:
        words = _WORD.findall(text)
        return Counter(run for i in range(max(1, len(words) - n + 1)) if (run := tuple(words[i : i + n])))

    ours, theirs = runs(found), runs(true)
    return (ours & theirs).total(), ours.total(), theirs.total()


# Which words of a page a reference text has.

# Table of the alignment, in cells: a longer pair of texts is compared by its runs of words alone.
_CELLS = 400_000_000
RUN = 5


@nb.njit(nogil=True, cache=True)
def _align(page, gold):
    """Words of `page` on the best alignment with `gold`, where a match that continues a run counts one and a half."""
    n, m = len(page), len(gold)
    # bit 0: the best of this cell ends in a match; bit 1: that match continues a run; bit 2: else the best is above
    steps = np.zeros((n + 1, m + 1), np.uint8)
    matched = np.full(m + 1, -1e9, np.float32)
    best = np.zeros(m + 1, np.float32)
    for i in range(1, n + 1):
        corner_matched, corner_best = matched[0], best[0]
        for j in range(1, m + 1):
            above_matched, above_best = matched[j], best[j]
            here = np.float32(-1e9)
            step = 0
            if page[i - 1] == gold[j - 1]:
                here = corner_best + np.float32(1)
                if corner_matched + np.float32(1.5) >= here:
                    here = corner_matched + np.float32(1.5)
                    step |= 2
            top = max(above_best, best[j - 1])
            if above_best >= best[j - 1]:
                step |= 4
            if here >= top:
                step |= 1
                top = here
            matched[j], best[j] = here, top
            steps[i, j] = step
            corner_matched, corner_best = above_matched, above_best
    covered = np.zeros(n, np.bool_)
    i, j = n, m
    run = False
    while i > 0 and j > 0:
        step = steps[i, j]
        if run or step & 1:
            covered[i - 1] = True
            run = step & 2 != 0
            i -= 1
            j -= 1
        elif step & 4:
            i -= 1
        else:
            j -= 1
    return covered


def covered(page: list[str], gold: list[str]) -> np.ndarray:
    """Whether each word of the page is one of the gold text: bool, shape (len(page),).

    It is if the best alignment of both says so, or if it stands in a run of five words that the gold text has too
    (gold texts do not always keep the order of the page). Holds len(page) * len(gold) bytes, at most 400 MB.
    """
    number: dict[str, int] = {}
    a = np.array([number.setdefault(word, len(number)) for word in page], np.int64)
    b = np.array([number.setdefault(word, len(number)) for word in gold], np.int64)
    inside = _align(a, b) if len(a) * len(b) <= _CELLS else np.zeros(len(a), bool)
    runs = {tuple(gold[i : i + RUN]) for i in range(len(gold) - RUN + 1)}
    for i in range(len(page) - RUN + 1):
        if tuple(page[i : i + RUN]) in runs:
            inside[i : i + RUN] = True
    return inside
