"""Engines that take a page to its main text: from HTML as a str to a text, which may be empty.

`blocks`, the default, is our own: it reads the page in one pass and lets a classifier choose among its blocks. To ask
trafilatura too where the classifier is unsure was tried: on pages held out it measures the same (F1 +.001 to
-.003) at half to three quarters of the speed. So was to tell the classifier which words resiliparse takes for main
text: on its training pages, by hosts left out in turn, +.000, +.001 and -.002 on the three sets at half the speed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import wrapt
from lxml.etree import ParserError
from resiliparse.extract.html2text import extract_plain_text

from gristmill.storage import files
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.extraction import second_stage
from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.description import describe
from gristmill.tasks.extraction.features import features
from gristmill.tasks.extraction.rendering.completed import completed
from gristmill.tasks.extraction.rendering.document import render
from gristmill.tasks.extraction.rendering.left_out import beside, repeats
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import shared, units
from gristmill.tasks.extraction.second_stage import SECOND, context, second
from gristmill.tasks.extraction.vocabulary import Page

if TYPE_CHECKING:
    import justext
    import trafilatura
else:
    justext = wrapt.lazy_import("justext")
    trafilatura = wrapt.lazy_import("trafilatura")


OTHERS = "others"  # the key of a row that has the further texts of its page


def united(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the engines made of one page, in their order, as what the first made of it that found a text; `others` are
    the further texts, each once, as (engine, text). Of a page without any text it is the first engine's drop."""
    by_text: dict[str, Mapping[str, Any]] = {}
    for each in results:
        if "rule" not in each:
            by_text.setdefault(each["text"], each)
    if not by_text:
        return dict(results[0])
    first, *others = by_text.values()
    return {**first, OTHERS: [(each["engine"], each["text"]) for each in others]}


def chosen(
    rows: Sequence[dict], columns: pa.Schema, normalized: Callable[[pa.Table], pa.Table], steps: Sequence[DocumentStep]
) -> list[dict]:
    """The rows of a batch of documents, each with the first of its texts that `steps` keep, and that text's engine.

    rows: those of documents, whose columns are `columns`, with the key `others`, which is taken out. normalized: what
    becomes of the documents' texts before the steps see them; a document may be left out. Each turn asks about one more
    text of the pages that have none yet; holds these once more, with the signals of the steps.
    """
    further = [row.pop(OTHERS, []) for row in rows]
    answer = list(rows)
    pending = [(index, row) for index, row in enumerate(rows) if further[index]]
    turn = 0
    while pending:
        kept = _kept(pa.Table.from_pylist([row for _, row in pending], schema=columns), normalized, steps)
        for index, row in pending:
            if row["id"] in kept:
                answer[index] = row
        pending = [
            (index, row | {"engine": engine, "text": text, "characters": len(text)})
            for index, row in pending
            if row["id"] not in kept and turn < len(further[index])
            for engine, text in [further[index][turn]]
        ]
        turn += 1
    return answer


def _kept(
    documents: pa.Table, normalized: Callable[[pa.Table], pa.Table], steps: Sequence[DocumentStep]
) -> frozenset[str]:
    """The ids of the documents that the steps keep."""
    signals = measured(normalized(documents), steps).table
    dropped = decide(signals, [(step.step, step.decisions()) for step in steps])
    return frozenset(signals["id"].to_pylist()).difference(*(rows["id"].to_pylist() for _, rows in dropped))


# What it cannot take becomes a row of the ledger; a message would repeat it.
logging.getLogger("trafilatura").setLevel(logging.CRITICAL)

MODEL = Path(__file__).with_name("blocks.safetensors")
# xxh3-128 of the model: so a stage's key, which is made of this code, names the model too.
MODEL_CHECKSUM = "a079b3a5a973c679856a2b31fe3ad284"
# libxml2 stops at 256 open elements and drops what is deeper; 40,000 of them end the process.
MAX_DEPTH = 250


class Refused(Exception):
    """The engine's parser must not see this page: nested too deep, it may not come back or ends the process."""


@cache
def _forests() -> tuple[second_stage.Masks, second_stage.Masks]:
    checksum = files.checksum(str(MODEL))
    if checksum != MODEL_CHECKSUM:
        raise ValueError(
            f"{MODEL} has the checksum {checksum}, not {MODEL_CHECKSUM}: install gristmill again; "
            "if you have trained it anew, set MODEL_CHECKSUM"
        )
    return second_stage.masks(second_stage.load(MODEL, "first")), second_stage.masks(second_stage.load(MODEL, "second"))


class Choice(NamedTuple):
    """What the classifier makes of a page: its bytes and their scan, the probability of each block to be main text and
    its number of words (float32), and the blocks that are best kept (bool)."""

    data: bytes
    page: Page
    likely: np.ndarray
    words: np.ndarray
    kept: np.ndarray


def choose(page: str, batch: int = 4096) -> Choice:
    """Scan a page and classify its blocks, twice: first alone, then with the others' probabilities.

    `batch`: rows of features that are held at once, about 250 features of 4 bytes each.
    """
    source = page.encode("utf-8", "replace")
    data = np.frombuffer(source, np.uint8)
    scanned = scan(data)
    described = describe(data, scanned)
    one, two = _forests()
    n = len(scanned.blocks.begin)
    first, likely = np.empty(n, np.float32), np.empty(n, np.float32)
    columns = np.empty((len(SECOND), 0), np.float32)
    for begin in range(0, n, batch):
        end = min(n, begin + batch)
        columns = np.empty((len(SECOND), end - begin), np.float32)
        features(scanned, described, begin, end, columns.T)
        second_stage.probability(one, columns, first[begin:end])
    gathered = context(scanned, described, first)
    for begin in range(0, n, batch):
        end = min(n, begin + batch)
        if n > batch:
            columns = np.empty((len(SECOND), end - begin), np.float32)
            features(scanned, described, begin, end, columns.T)
        second(scanned, described, first, gathered, begin, end, columns.T)
        second_stage.probability(two, columns, likely[begin:end])
    return Choice(source, scanned, likely, described.text.words, best_f1(likely, described.text.words))


def best_f1(likely: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The blocks (bool) that maximise the expected F1 of their words.

    With words w and probabilities p the F1 of a choice S is taken as 2 * sum_S(pw) / (sum_S(w) + sum(pw)); the best
    choice is the blocks above some probability (Lewis 1995), which is found by trying them all.
    """
    kept = np.zeros(len(likely), bool)
    order = np.argsort(-likely, kind="stable")
    gain = np.cumsum((likely * words)[order], dtype=np.float64)
    if not len(gain) or gain[-1] <= 0:
        return kept
    f1 = 2 * gain / (np.cumsum(words[order], dtype=np.float64) + gain[-1])
    best = int(np.argmax(f1))
    kept[order[: best + 1]] = True
    return kept


def blocks(page: str, markdown: bool = False) -> str:
    """Our scan and classifier alone, the text plain or as Markdown."""
    choice = choose(page)
    source = Source(choice.data, choice.page)
    together = units(source)
    kept = choice.kept
    if together.wholes:
        kept = best_f1(shared(choice.page, choice.likely, choice.words, together.unit), choice.words)
    kept = completed(source, together, kept)
    kept &= ~beside(choice.page, kept, choice.words)
    kept &= ~repeats(choice.page, kept, together.unit > 0)
    return render(source, together, kept, markdown)


def resiliparse(page: str) -> str:
    return extract_plain_text(page, main_content=True, alt_texts=False)


def plain(page: str) -> str:
    """All text of the page."""
    return extract_plain_text(page, main_content=False, alt_texts=False)


def careful(page: str) -> str:
    """trafilatura without its fallbacks, on a page that its parser can take."""
    _refuse_deep(page)
    return trafilatura.extract(page, fast=True, include_comments=False) or ""


def by_stop_words(page: str) -> str:
    """jusText with its English stop words, as is its habit; it takes pages of other languages for boilerplate."""
    _refuse_deep(page)
    try:
        paragraphs = justext.justext(page.encode("utf-8", "replace"), _stop_words(), encoding="utf-8")
    except ParserError:  # a page without any element
        return ""
    return "\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)


@cache
def _stop_words() -> frozenset[str]:
    return justext.get_stoplist("English")


def _refuse_deep(page: str) -> None:
    depth = scan(np.frombuffer(page.encode("utf-8", "replace"), np.uint8)).depth
    if depth > MAX_DEPTH:
        raise Refused(f"{depth} elements open at once, more than {MAX_DEPTH}")


ENGINES: dict[str, Callable[[str], str]] = {
    "blocks": blocks,
    "resiliparse": resiliparse,
    "trafilatura": careful,
    "justext": by_stop_words,
    "plain": plain,
}


@cache
def engine(name: str) -> Callable[[str], str]:
    """The engine of a name, or a user's own at `module:function`, which takes and returns the same. Raises what its
    import raises."""
    if known_engine := ENGINES.get(name):
        return known_engine
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)
